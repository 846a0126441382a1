//! Builds the launch options of a proxy in the form that MPICH's Hydra uses.

use super::family::{Family, Header};

/// The part of a process group that is launched at a single proxy. The ranks of each program at the proxy are consecutive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupLaunch {
    /// Number of processes in the group.
    pub size: u32,
    /// The name of the group's keyval space.
    pub kvsname: Vec<u8>,
    /// The name of the keyval space of the group that requested the spawn, if this group was spawned.
    pub parent: Option<Vec<u8>>,
    /// The group's process mapping.
    pub mapping: Vec<u8>,
    /// The default working directory of programs, for proxies whose programs do not inherit it.
    pub dir: Option<Vec<u8>>,
    /// The processes of each program. There is at least one program.
    pub blocks: Vec<ProcessBlock>,
}

/// The processes of a program at a single proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessBlock {
    /// The number of the program in the request that starts the group.
    pub appnum: u32,
    /// The lowest rank of the processes.
    pub first: u32,
    /// The number of processes at this proxy.
    pub count: u32,
    /// The number of the program's processes at all proxies.
    pub total_count: u32,
    /// The program that the processes run.
    pub program: LaunchProgram,
}

/// A program and its working directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaunchProgram {
    /// The program and its arguments.
    pub argv: Vec<Vec<u8>>,
    /// The requested working directory, if any.
    pub dir: Option<Vec<u8>>,
}

impl GroupLaunch {
    /// Returns the number of processes at this proxy.
    pub fn count(&self) -> u32 {
        self.blocks.iter().map(|b| b.count).sum()
    }

    pub(super) fn options(&self, family: Family) -> Vec<Vec<u8>> {
        let mut list: Vec<Vec<u8>> = Vec::new();
        let count = self.count();
        let mut add = |name: &str, value: &[u8]| {
            list.push(format!("--{name}").into_bytes());
            list.push(value.to_vec());
        };
        if !family.lists_ranks() {
            // The map has no filler processes, and its single round covers all processes of this proxy.
            add("global-core-map", format!("0,{count},{}", self.size).as_bytes());
            add("pmi-id-map", format!("0,{}", self.blocks.first().map_or(0, |b| b.first)).as_bytes());
        }
        add("global-process-count", self.size.to_string().as_bytes());
        if family.header() == Header::Wide {
            add("proxy-core-count", count.to_string().as_bytes());
        }
        add("auto-cleanup", b"1");
        add("pmi-kvsname", &self.kvsname);
        if let Some(parent) = &self.parent {
            add("pmi-spawner-kvsname", parent);
        }
        add("pmi-process-mapping", &self.mapping);
        for block in &self.blocks {
            list.push(b"--exec".to_vec());
            let mut add = |name: &str, values: &[&[u8]]| {
                list.push(format!("--{name}").into_bytes());
                list.extend(values.iter().map(|v| v.to_vec()));
            };
            add("exec-appnum", &[block.appnum.to_string().as_bytes()]);
            if family.lists_ranks() {
                add("exec-rank", &[block.first.to_string().as_bytes()]);
            }
            add("exec-proc-count", &[block.count.to_string().as_bytes()]);
            if self.parent.is_some() {
                add("exec-local-env", &[b"1", b"'PMI_SPAWNED=1'"]);
            }
            if let Some(dir) = &block.program.dir {
                add("exec-wdir", &[dir]);
            }
            let argc = block.program.argv.len().to_string();
            add("exec-args", &[argc.as_bytes()]);
            list.extend(block.program.argv.iter().cloned());
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(parent: Option<Vec<u8>>) -> GroupLaunch {
        let program = LaunchProgram { argv: vec![b"prog".to_vec(), b"a b".to_vec()], dir: None };
        GroupLaunch {
            size: 4,
            kvsname: b"kvs".to_vec(),
            parent,
            mapping: b"(vector,(0,2,2))".to_vec(),
            dir: None,
            blocks: vec![ProcessBlock { appnum: 0, first: 2, count: 2, total_count: 4, program }],
        }
    }

    fn shown(launch: &GroupLaunch, family: Family) -> String {
        let options = launch.options(family);
        options.iter().map(|o| String::from_utf8_lossy(o).into_owned()).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn launch_options_depend_on_the_family() {
        assert_eq!(
            shown(&launch(None), Family::Mpich3_4),
            "--global-core-map|0,2,4|--pmi-id-map|0,2|--global-process-count|4|--proxy-core-count|2|\
             --auto-cleanup|1|--pmi-kvsname|kvs|--pmi-process-mapping|(vector,(0,2,2))|--exec|--exec-appnum|0|\
             --exec-proc-count|2|--exec-args|2|prog|a b"
        );
        assert_eq!(
            shown(&launch(Some(b"up".to_vec())), Family::Mpich5_0_2),
            "--global-process-count|4|--auto-cleanup|1|--pmi-kvsname|kvs|--pmi-spawner-kvsname|up|\
             --pmi-process-mapping|(vector,(0,2,2))|--exec|--exec-appnum|0|--exec-rank|2|--exec-proc-count|2|\
             --exec-local-env|1|'PMI_SPAWNED=1'|--exec-args|2|prog|a b"
        );
    }
}
