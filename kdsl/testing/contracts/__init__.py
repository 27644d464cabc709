"""The contracts of plug-ins: test classes that the tests of a format, a sink or a secret provider subclass.

They need pytest and nothing else besides kdsl. Each is in a module of its own, as `kdsl.testing.contracts.formats` is.
"""
