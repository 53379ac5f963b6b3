"""Random training graphs, random pipelines: compiled, run, and compared with native training.

A *plan* (`plan.py`) is data: a network, a loss, an optimizer, a training cell and a pipeline. One is drawn from a seed
(`grammar.py` draws networks, `training.py` the rest); `build.py` makes MindSpore cells of it, `judge.py` says whether
the compiled program trains as MindSpore does, and `shrinking.py` makes what fails smaller. `running.py` does so for
many, in processes of their own: `python -m tests.random_programs --help`.
"""
