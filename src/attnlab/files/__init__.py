"""Reading and writing: documents, recipes, sealed results, locks; and what is said meanwhile.

Stands on nothing else of attnlab. Import from the modules: loading one loads no other.
"""
