"""The parts of boost-run: its options as a job, the training in this process or in ranks, evaluation, what it says."""
