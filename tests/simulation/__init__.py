"""Runs kdsl's protocols in virtual time, with models of Kafka, Spark, file systems and targets.

`tests.simulation.world` is the scheduler; the models are in modules of their own, and each module whose name begins
with ``scenario_`` puts some of them together and says what must hold at the end.
"""
