# SPDX-License-Identifier: (Apache-2.0 OR MIT)

from spack_repo.builtin.build_systems.cargo import CargoPackage

from spack.package import *


class PmiConform(CargoPackage):
    """Checks whether process managers, programs and libraries comply with PMI, the protocol
    between MPI programs and their process managers, and fuzzes them."""

    homepage = "https://github.com/pmi-conform/pmi-conform"
    git = "https://github.com/pmi-conform/pmi-conform.git"

    license("MIT OR Apache-2.0")

    version("main", branch="main")
    # A release replaces the tag with the commit.
    version("0.1.0", tag="v0.1.0")

    depends_on("c", type="build")
    depends_on("rust@1.91:", type="build")

    def build(self, spec, prefix):
        cargo = which("cargo", required=True)
        crates = ["-p", "pmi-conform", "-p", "libpmi", "-p", "libpmi2"]
        cargo("build", "--locked", "--release", "-j", str(make_jobs), *crates)

    def install(self, spec, prefix):
        Executable("ci/packages/install")("target/release", prefix)

    def check(self):
        """The tests of the workspace need MPICH, so only the installed command is tested."""

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def judge_reference(self):
        Executable(self.prefix.bin.join("pmi-conform"))("-q", "--filter", "barrier/*")
