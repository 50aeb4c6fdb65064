"""The clients, each as its documentation uses it, with its defaults.

Each module has the function ``connect``, and imports its client, which is installed in an environment of its own.
"""
