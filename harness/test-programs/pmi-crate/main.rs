//! Puts a value, and reads and prints the value of the next rank.

use pmi::Pmi;

fn main() {
    let pmi = pmi::PmiBuilder::init().unwrap();
    pmi.put("key", format!("value of rank {}", pmi.rank()).as_bytes()).unwrap();
    pmi.exchange().unwrap();
    let next = (pmi.rank() + 1) % pmi.ranks().len();
    println!("{}", String::from_utf8(pmi.get("key", &next).unwrap()).unwrap());
}
