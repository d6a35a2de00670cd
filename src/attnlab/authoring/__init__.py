"""Tools for authors of papers: a template, and the requirements that a paper has to fulfil.

In the tests of a paper, the same list as `attnlab check-paper` goes through:

    import pytest
    from attnlab.authoring import requirements

    @pytest.mark.parametrize("requirement", requirements("own_paper"), ids=str)
    def test_the_paper(requirement):
        requirement()

`__init__.pyi` lists the public names, which are loaded when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
