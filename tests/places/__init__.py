"""Run the programs of ``examples/places/`` as their users do, and see that no request is lost or carried out twice."""
