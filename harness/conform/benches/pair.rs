//! Benchmarks of the reference server and its clients, which are connected in memory and need no processes.

use divan::Bencher;
use divan::counter::ItemsCount;
use pmi_reference::client::{Client, ServerResponse};
use pmi_reference::{Config, GroupSpec, Server, ServerAction};
use pmi_wire::Proc;

#[global_allocator]
static ALLOCATOR: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    divan::main();
}

fn key(rank: u32) -> Vec<u8> {
    format!("addr-{rank}").into_bytes()
}

struct Pair {
    server: Server,
    clients: Vec<Client>,
}

impl Pair {
    fn new(ranks: u32) -> Self {
        let mut server = Server::new(Config::default());
        server.add_group(GroupSpec { programs: vec![ranks], ..GroupSpec::default() });
        Self { server, clients: (0..ranks).map(|_| Client::new()).collect() }
    }

    fn send(&mut self, rank: u32, bytes: &[u8]) {
        self.server.receive(Proc { group: 0, rank }, bytes);
        while let Some(ServerAction::Send { to, bytes }) = self.server.next_action() {
            let answer = self.clients[to.rank as usize].receive(&bytes).unwrap().unwrap();
            assert!(!matches!(answer, ServerResponse::Failed { .. }));
        }
    }

    /// Makes every rank perform one operation.
    fn each(&mut self, request: impl Fn(&mut Client, u32) -> Vec<u8>) {
        for rank in 0..self.clients.len() as u32 {
            let bytes = request(&mut self.clients[rank as usize], rank);
            self.send(rank, &bytes);
        }
    }

    /// Makes every rank put a key, enter the barrier, and get the keys of `gets` ranks.
    fn exchange(&mut self, gets: u32) {
        let size = self.clients.len() as u32;
        self.each(|client, _| client.init().unwrap());
        self.each(|client, _| client.maxes().unwrap());
        self.each(|client, _| client.kvsname().unwrap());
        self.each(|client, rank| client.put(&key(rank), &[b'v'; 64]).unwrap());
        self.each(|client, _| client.barrier().unwrap());
        for i in 0..gets {
            self.each(|client, rank| client.get(&key((rank + i) % size)).unwrap());
        }
        self.each(|client, _| client.finalize().unwrap());
    }
}

/// Makes every rank get every key, so the number of gets is the square of the number of ranks.
#[divan::bench(args = [256, 1024], sample_count = 10)]
fn get_all(bencher: Bencher, ranks: u32) {
    bencher
        .counter(ItemsCount::new(u64::from(ranks) * u64::from(ranks)))
        .bench(|| Pair::new(ranks).exchange(ranks));
}

/// Makes every rank get ten keys. Neither the time nor the memory (the column "max alloc") may grow faster than the number of ranks.
#[divan::bench(args = [100, 1_000, 10_000, 100_000], sample_count = 10)]
fn get_few(bencher: Bencher, ranks: u32) {
    bencher.counter(ItemsCount::new(ranks)).bench(|| Pair::new(ranks).exchange(10));
}
