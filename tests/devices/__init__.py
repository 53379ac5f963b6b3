"""Programs on MindSpore's own GPU and Ascend backends, on a machine without such a device.

The MindSpore package ships both backends; they lack only the vendors' libraries. Stand-ins for these are built from the
names that the package's libraries ask for (`gpu.py`, `ascend.py`). Then MindSpore selects kernels with their dtypes,
prepares them, plans memory and schedules the steps as on a real device. docs/devices.md says what that shows and what
it does not. `python -m tests.devices` runs it; tests/devices/test_devices.py judges it.
"""
