"""Tools for authors of papers: a template, and the requirements that a paper has to fulfil.

In the tests of a paper, the same list as `attnlab check-paper` goes through:

    import pytest
    from attnlab.authoring import requirements

    @pytest.mark.parametrize("requirement", requirements("own_paper"), ids=str)
    def test_the_paper(requirement):
        requirement()
"""

from attnlab.authoring.conformance import Outcome, Requirement, examine, requirements
from attnlab.authoring.template import new_paper

__all__ = ["Outcome", "Requirement", "examine", "new_paper", "requirements"]
