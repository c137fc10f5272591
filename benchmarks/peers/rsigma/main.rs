//! rsigma over rules and events in memory.
//!
//! Argument: a folder of rules. Commands on standard input, each answered by one line of JSON: `load FILE` reads events,
//! one on each line; `pass 1` matches every event in one thread and tells its processor seconds; `write FILE` writes the
//! ids of the rules that each event matches, a JSON list on each line.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::io::{self, BufRead, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cpu_time::ThreadTime;
use rsigma_eval::event::JsonEvent;
use rsigma_eval::Engine;
use serde_json::{json, Value};

type Answer = Result<Value, Box<dyn Error>>;

struct Rules {
    engine: Engine,
    refused: usize,
    events: Vec<String>,
}

impl Rules {
    fn of(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let mut refused = 0;
        let mut files = Vec::new();
        collect(folder, &mut files)?;
        files.sort();
        let mut rules = Vec::new();
        for file in files {
            match rsigma_parser::parse_sigma_yaml(&fs::read_to_string(file)?) {
                Ok(collection) => rules.extend(collection.rules),
                Err(_) => refused += 1,
            }
        }
        let mut engine = Engine::new();
        refused += engine.add_rules(&rules).len();
        Ok(Self { engine, refused, events: Vec::new() })
    }

    fn load(&mut self, file: &str) -> Answer {
        self.events = fs::read_to_string(file)?.lines().map(str::to_owned).collect();
        Ok(json!({"events": self.events.len()}))
    }

    fn pass(&self) -> Answer {
        let mut matched = 0;
        let begin = ThreadTime::now();
        for event in &self.events {
            let value: Value = serde_json::from_str(event)?;
            matched += self.engine.evaluate(&JsonEvent::borrow(&value)).len();
        }
        let taken: Duration = begin.elapsed();
        Ok(json!({"cpu": taken.as_secs_f64(), "matched": matched}))
    }

    fn write(&self, file: &str) -> Answer {
        let mut writer = BufWriter::new(fs::File::create(file)?);
        for event in &self.events {
            let value: Value = serde_json::from_str(event)?;
            let matches = self.engine.evaluate(&JsonEvent::borrow(&value));
            let ids: BTreeSet<_> = matches.iter().filter_map(|one| one.header.rule_id.as_deref()).collect();
            writeln!(writer, "{}", json!(ids))?;
        }
        writer.flush()?;
        Ok(json!({"rules": self.engine.rule_count(), "refused": self.refused}))
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "yml") {
            files.push(path);
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("the folder of rules is missing")?;
    let mut rules = Rules::of(Path::new(&folder))?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let (command, file) = line.split_once(' ').unwrap_or((&line, ""));
        let answer = match command {
            "load" => rules.load(file)?,
            "pass" => rules.pass()?,
            _ => rules.write(file)?,
        };
        println!("{answer}");
        io::stdout().flush()?;
    }
    Ok(())
}
