"""Build the package; the experiments lie in it as `tlm_ray/scripts`, for the command `tlm`."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["tlm_ray*"]), "tlm_ray.scripts"],
    package_dir={"tlm_ray.scripts": "experiments"},
)
