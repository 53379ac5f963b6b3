"""Do the fast tests notice when the code is wrong? Breaks it in many small ways, one at a time, and counts who notices.

    make mutants MODULE=passes/step/split.py N=40

mutmut and cosmic-ray were looked at first. cosmic-ray writes each mutant into the working tree and starts the whole
test command anew: a minute for each. mutmut (3.8) forks and knows which tests run a function, but takes the name of a
module from its path, while here setup.py maps `ir/` to `boost_compile.ir`; it removes no statements, swaps no
arguments, drops no entries of tables and draws no sample. What is left to do is short, and coverage.py does the larger
part of it.
"""
