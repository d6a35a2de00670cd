"""Recipes stand beside src/, where people find them; a wheel has them inside the package."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithRecipes(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # which reads the clone itself
            inside = Path(self.build_lib) / "attnlab" / "recipes"
            shutil.rmtree(inside, ignore_errors=True)  # what an earlier build left
            shutil.copytree("recipes", inside)


setup(cmdclass={"build_py": BuildWithRecipes})
