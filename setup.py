"""Recipes and the example of a paper stand beside src/, where people find them; a wheel has them
inside the package."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

# what running and building the example leave behind
UNWANTED = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")


class BuildWithData(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:  # which reads the clone itself
            return
        for folder in (Path("recipes"), Path("examples/own_paper")):
            inside = Path(self.build_lib) / "attnlab" / folder.name
            shutil.rmtree(inside, ignore_errors=True)  # what an earlier build left
            shutil.copytree(folder, inside, ignore=UNWANTED)


setup(cmdclass={"build_py": BuildWithData})
