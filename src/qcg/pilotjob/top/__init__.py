"""The terminal view `qcg-pm top`: keys change a model, and the model is drawn with rich.

It may import `watch` and everything below.
"""
