//! Steps that change a spawn request, or the programs that are started for it.

use pmi_wire::SpawnRequest;

use super::step::{Editable, UnknownStep, VerbAndArguments, number};
use crate::circumstances::Circumstances;

impl Editable for SpawnRequest {
    fn step(&mut self, words: VerbAndArguments, circumstances: &Circumstances) -> Result<bool, UnknownStep> {
        match words {
            ["if-no-arguments"] => return Ok(self.programs.iter().all(|program| program.args.is_empty())),
            ["if-more-arguments", than] => {
                let than: usize = number(than)?;
                return Ok(self.programs.iter().any(|program| program.args.len() > than));
            }
            ["if-more-programs", than] => return Ok(self.programs.len() > number::<usize>(than)?),
            ["if-more-processes", than] => return Ok(self.processes() > number::<u64>(than)?),
            ["programs", "truncate", length] => self.programs.truncate(number(length)?),
            ["no-program"] => self.programs.clear(),
            ["first-program"] => self.programs.truncate(1),
            ["last-program", by] => {
                let by = number(by)?;
                if let Some(last) = self.programs.last_mut() {
                    last.nprocs = last.nprocs.saturating_add_signed(by);
                }
            }
            ["one-of-each"] => self.programs.iter_mut().for_each(|program| program.nprocs = 1),
            ["arguments-of-first"] => {
                let first = self.programs.first().map(|program| program.args.clone()).unwrap_or_default();
                self.programs.iter_mut().for_each(|program| program.args.clone_from(&first));
            }
            ["arguments", "split"] => {
                for program in &mut self.programs {
                    let values = program.args.drain(..).map(|(_, value)| value).collect::<Vec<_>>();
                    let words = values.iter().flat_map(|value| value.split(|byte| *byte == b' '));
                    program.args = (0..).zip(words.map(<[u8]>::to_vec)).collect();
                }
            }
            ["arguments", words @ ..] => {
                for program in &mut self.programs {
                    let mut values = program.args.drain(..).map(|(_, value)| value).collect();
                    change_list(&mut values, words)?;
                    program.args = (0..).zip(values).collect();
                }
            }
            ["each-argument", words @ ..] => {
                Vec::<u8>::new().step(words, circumstances)?;
                for (_, value) in self.programs.iter_mut().flat_map(|program| &mut program.args) {
                    value.step(words, circumstances)?;
                }
            }
            ["each-value", words @ ..] => {
                Vec::<u8>::new().step(words, circumstances)?;
                for (_, value) in self.programs.iter_mut().flat_map(|program| &mut program.preput) {
                    value.step(words, circumstances)?;
                }
            }
            ["preput", "first"] => self.programs.iter_mut().for_each(|program| program.preput.truncate(1)),
            ["preput", "truncate", length] => {
                let length: usize = number(length)?;
                self.programs.iter_mut().for_each(|program| program.preput.truncate(length));
            }
            ["preput", "swap"] => {
                let pairs = self.programs.iter_mut().flat_map(|program| &mut program.preput);
                pairs.for_each(|(key, value)| std::mem::swap(key, value));
            }
            _ => return Err(UnknownStep),
        }
        Ok(true)
    }
}

fn change_list(list: &mut Vec<Vec<u8>>, words: VerbAndArguments) -> Result<(), UnknownStep> {
    match words {
        ["clear"] => list.clear(),
        ["pop"] => drop(list.pop()),
        ["shift"] => drop(list.drain(..1.min(list.len()))),
        ["reverse"] => list.reverse(),
        ["truncate", length] => list.truncate(number(length)?),
        ["push", value] => list.push(value.as_bytes().to_vec()),
        // Sort the values by their numbers as text, so that value 10 comes before value 2.
        ["sort"] => {
            let mut numbered: Vec<_> = (0..list.len()).map(|i| i.to_string()).zip(list.drain(..)).collect();
            numbered.sort();
            list.extend(numbered.into_iter().map(|(_, value)| value));
        }
        _ => return Err(UnknownStep),
    }
    Ok(())
}
