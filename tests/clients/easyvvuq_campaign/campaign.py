"""A campaign of EasyVVUQ: 20 samples through its QCGPJPool, everything as it is by default. Prints what came out."""

import json
import os
import sys
import time

import chaospy as cp
import easyvvuq as uq
from easyvvuq.actions import Actions, CreateRunDirectory, Decode, Encode, ExecuteLocal, QCGPJPool

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "model.py")
SAMPLES = 20


def main() -> None:
    with open("input.template", "w") as file:
        file.write('{"a": "$a", "b": "$b"}')
    actions = Actions(
        CreateRunDirectory(os.getcwd(), flatten=True),
        Encode(uq.encoders.GenericEncoder(template_fname="input.template", delimiter="$", target_filename="in.json")),
        ExecuteLocal(f"{sys.executable} {MODEL} in.json"),
        Decode(uq.decoders.SimpleCSV(target_filename="output.csv", output_columns=["y"])),
    )
    params = {name: {"type": "float", "min": 0.0, "max": 10.0, "default": 1.0} for name in ("a", "b")}
    campaign = uq.Campaign(name="c", params=params, actions=actions, work_dir=os.getcwd())
    campaign.set_sampler(uq.sampling.RandomSampler({"a": cp.Uniform(0, 10), "b": cp.Uniform(0, 10)}))
    start = time.monotonic()
    with QCGPJPool() as pool:
        campaign.execute(nsamples=SAMPLES, pool=pool).collate()
    results = campaign.get_collation_result()
    rows = [[float(row[name].iloc[0]) for name in ("a", "b", "y")] for _, row in results.iterrows()]
    print(json.dumps({"rows": rows, "seconds": time.monotonic() - start}))


main()
