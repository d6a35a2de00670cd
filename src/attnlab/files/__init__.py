"""Reading and writing: documents, recipes, sealed results, locks, and progress messages.

Stands on nothing else of attnlab. Import from the modules: loading one loads no other.
"""
