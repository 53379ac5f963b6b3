"""What a program is: types, data, primitives, graphs, state, schedule."""
