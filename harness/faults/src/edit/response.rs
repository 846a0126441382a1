//! Steps that change a response.

use super::step::{Editable, UnknownStep, VerbAndArguments, fill, number};
use crate::circumstances::Circumstances;
use crate::response_draft::{LengthFormat, ResponseDraft};

impl Editable for ResponseDraft {
    fn step(&mut self, words: VerbAndArguments, circumstances: &Circumstances) -> Result<bool, UnknownStep> {
        let filled = |text| fill(text, circumstances);
        match words {
            // Steps that are conditions.
            ["if", key, value] => return Ok(self.get(key).is_some_and(|v| *v == value.as_bytes())),
            ["if-has", key] => return Ok(self.get(key).is_some()),
            ["unless-has", key] => return Ok(self.get(key).is_none()),
            ["unless-empty"] => return Ok(!self.tuples.is_empty()),
            ["if-mapping"] => return Ok(self.has_mapping()),
            ["unless-mapping"] => return Ok(!self.has_mapping()),
            // Steps that change tuples.
            ["set", key, value] => self.set(key, filled(value)),
            ["add", key, value] => self.add(key, filled(value)),
            ["insert", key, value] => self.insert(key, filled(value)),
            ["remove", names @ ..] => self.retain(names, false),
            ["keep", names @ ..] => self.retain(names, true),
            ["keep-first", count] => self.tuples.truncate(number(count)?),
            ["rename", key, new] => self.rename(key, new),
            ["in", key, words @ ..] => match self.get_mut(key) {
                Some(value) => return value.step(words, circumstances),
                None => return Vec::<u8>::new().step(words, circumstances),
            },
            ["replace", tuples @ ..] => {
                self.tuples.clear();
                tuples.as_chunks().0.iter().for_each(|[key, value]| self.add(key, *value));
            }
            ["move-to-front", key] => self.move_to(key, 1),
            ["move-to-end", key] => self.move_to(key, self.tuples.len()),
            ["reverse"] => self.reverse(),
            ["reverse-before-value"] => {
                let value = self.tuples.iter().position(|(key, _)| **key == *b"value");
                let value = value.map(|at| self.tuples.remove(at));
                self.reverse();
                self.tuples.extend(value);
            }
            ["twenty-more-keys"] => (0..20).for_each(|i| self.insert(&format!("x{i}"), i.to_string())),
            ["fail"] => self.fail(),
            ["succeed", name, value] => self.succeed(name, filled(value)),
            // Steps that change the format or the recipient.
            ["before", text] => self.prefix = text.as_bytes(),
            ["binary-before"] => self.prefix = b"\x01\xff",
            ["between", text] => self.separator = text.as_bytes(),
            ["end", text] => self.terminator = text.as_bytes(),
            ["after", text] => self.suffix = text.as_bytes().to_vec(),
            ["echo", request] => {
                self.suffix = self.bytes();
                self.tuples.clear();
                self.add("cmd", *request);
            }
            ["length", text] => self.length = Some(LengthFormat::Text(text)),
            ["length-left"] => self.length = Some(LengthFormat::LeftAligned),
            ["length-zeros"] => self.length = Some(LengthFormat::ZeroPadded),
            ["no-length"] => self.length = None,
            ["longer", by] => self.length_offset = number(by)?,
            ["single-semicolons"] => self.doubles_semicolons = false,
            ["copies", count] => self.copies = number(count)?,
            ["silence"] => self.copies = 0,
            // Leak memory only in the first 12 uses, so that the machine does not run out of memory.
            ["leak", mib] if circumstances.use_count <= 12 => {
                std::mem::forget(vec![1_u8; number::<usize>(mib)? << 20]);
            }
            ["leak", _] => {}
            ["to-next-rank"] => self.to.rank = (self.to.rank + 1) % circumstances.size,
            ["to-rank-0"] => self.to.rank = 0,
            _ => return Err(UnknownStep),
        }
        Ok(true)
    }
}
