"""Programs that type checkers accept, and lines that they refuse: ``python -m tests.typing`` runs them all.

``right`` has programs, and the forms of arguments that the documentation allows, which also run. In ``wrong`` each line
with the comment ``# wrong`` is wrong; ``# wrong: mypy pyright`` names the checkers that must refuse it, if others
cannot, and ``# wrong; says int`` a word that each error has. No checker may refuse another line, nor one of
``examples``.
"""
