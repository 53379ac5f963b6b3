"""The lowerings for CPU that decide how much memory a session takes. The runtime runs them among its others
(``runtime/lowering/lower.py``); the estimate of memory, and passes that go by it, take them from here.
"""
