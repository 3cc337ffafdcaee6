"""Cut-offs of a host, which begin in the thread of the fence. Python 3.6 reads this file."""

import unittest

from qcg.pilotjob.host.cut_off import CutOff


class CutOffs(unittest.TestCase):
    def setUp(self):
        self.held = False
        self.cut_off = CutOff(self.hold)
        self.at_hold = lambda: None

    def hold(self, held):
        """As a lane runner; `at_hold` is what the thread of the fence does right before."""
        at_hold, self.at_hold = self.at_hold, lambda: None
        at_hold()
        self.held = held

    def test_jobs_are_lost_until_the_cut_off_is_over(self):
        assert (self.cut_off.message, self.held) == ("", False)
        self.cut_off.begin("one")
        assert (self.cut_off.message, self.held) == ("one", True)
        self.cut_off.end(self.cut_off.begun)
        assert (self.cut_off.message, self.held) == ("", False)

    def test_the_end_of_one_cut_off_does_not_end_the_next_one(self):
        self.cut_off.begin("one")
        begun = self.cut_off.begun
        self.cut_off.begin("two")
        self.cut_off.end(begun)
        assert (self.cut_off.message, self.held) == ("two", True)

    def test_a_host_that_is_no_longer_given_up_stays_cut_off(self):
        self.cut_off.give_up("given up")
        assert (self.cut_off.message, self.held) == ("given up", True)
        self.cut_off.begin("one")
        self.cut_off.give_up("")
        assert (self.cut_off.message, self.held) == ("one", True)

    def test_a_host_stays_given_up_when_its_cut_off_is_over(self):
        self.cut_off.begin("one")
        self.cut_off.give_up("given up")
        self.cut_off.end(1)
        assert (self.cut_off.message, self.held) == ("given up", True)

    def test_the_runner_is_held_when_a_cut_off_begins_just_before_it_is_released(self):
        self.cut_off.give_up("given up")
        self.at_hold = lambda: self.cut_off.begin("one")
        self.cut_off.give_up("")
        assert (self.cut_off.message, self.held) == ("one", True)
