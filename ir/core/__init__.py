"""The parts of a program: types, data, primitives, graphs, state, schedule."""
