"""The door inside MindSpore's own compiler: the training steps that a user's script compiles, rewritten on the way."""
