//! Rules of this project that no other tool checks.
//!
//! - No module is longer than [`MOST_LINES`] lines.
//! - Every crate takes the workspace's lints.
//! - Files speak of the project, not of a machine: no paths of somebody's computer, no private hosts.
//! - A link between documents leads somewhere.
//! - The README's library example is the one in the library's documentation, which is compiled.

use std::path::Path;

use anyhow::{Context, Result};

use crate::command::Step;

/// Lines that a module may have.
const MOST_LINES: usize = 500;

/// Paths of a machine. Put together here, so that this file may be checked too.
const MACHINE_PATHS: [&str; 5] = [
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("../sha", "red"),
];

/// Last parts of host names that only some network knows.
const PRIVATE_HOSTS: [&str; 5] = ["internal", "local", "lan", "corp", "intranet"];

/// Files that are looked at, by extension or name.
const TEXT: [&str; 10] = [
    "rs", "md", "toml", "lock", "py", "sh", "yml", "yaml", "json", "csv",
];

/// Every broken rule, one line each: the file, the line where there is one, and what is wrong.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    // Git knows which files belong to the project; what it ignores is somebody's own.
    let files = Step::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .quiet_output()
        .context("the project's files are listed by git")?;
    let mut broken = Vec::new();
    for file in files.lines() {
        let path = root.join(file);
        // A file that was just removed is still listed; one that is no text has nothing to say.
        let Some(text) = is_text(file)
            .then(|| std::fs::read_to_string(&path).ok())
            .flatten()
        else {
            continue;
        };
        broken.extend(machine_words(file, &text));
        if file.ends_with(".rs") {
            broken.extend(length(file, &text));
        }
        if file.ends_with("Cargo.toml") {
            broken.extend(lints(file, &text));
        }
        if file.ends_with(".md") {
            let folder = path.parent().unwrap_or(root);
            broken.extend(links(file, &text, |target| folder.join(target).exists()));
        }
    }
    let example = (
        fenced(&read(&root.join("README.md"))?, "```rust"),
        documented(&read(&root.join("crates/track/src/lib.rs"))?),
    );
    if example.0.is_empty() || example.0 != example.1 {
        broken.push(
            "README.md: the Rust example is not the one in crates/track/src/lib.rs; copy that"
                .to_owned(),
        );
    }
    Ok(broken)
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
}

/// The lines of a document's first block that opens with `fence`.
fn fenced(text: &str, fence: &str) -> Vec<String> {
    let block = text.lines().skip_while(|line| !line.starts_with(fence));
    let lines = block.skip(1).take_while(|line| !line.starts_with("```"));
    lines.map(str::to_owned).collect()
}

/// The first example of a module's documentation, as readers see it: without hidden lines.
fn documented(source: &str) -> Vec<String> {
    let lines = source.lines().filter_map(|line| line.strip_prefix("//!"));
    let text: Vec<_> = lines.map(|l| l.strip_prefix(' ').unwrap_or(l)).collect();
    let mut example = fenced(&text.join("\n"), "```");
    example.retain(|line| !line.starts_with("# "));
    example
}

fn is_text(file: &str) -> bool {
    let path = Path::new(file);
    match path.extension() {
        Some(extension) => TEXT.contains(&extension.to_string_lossy().as_ref()),
        None => true,
    }
}

fn length(file: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    let module = file.split('/').any(|part| part == "src");
    (module && lines > MOST_LINES)
        .then(|| format!("{file}: {lines} lines; split it, a module has at most {MOST_LINES}"))
}

fn lints(file: &str, text: &str) -> Option<String> {
    let mut section = "";
    let mut package = false;
    let mut taken = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
            package |= section == "[package]";
        }
        taken |= section == "[lints]" && line.replace(' ', "") == "workspace=true";
    }
    (package && !taken).then(|| {
        format!("{file}: does not take the workspace's lints; add [lints] with workspace = true")
    })
}

fn machine_words(file: &str, text: &str) -> Vec<String> {
    let mut broken = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let path = MACHINE_PATHS.into_iter().find(|path| line.contains(path));
        let host = hosts(line).find(|host| is_private(host));
        for word in path.iter().chain(&host) {
            broken.push(format!(
                "{file}:{}: '{word}' belongs to a machine, not to the project",
                number + 1
            ));
        }
    }
    broken
}

/// Hosts of the addresses in a line, without a port. A browser's own pages (`chrome://tracing`) have none.
fn hosts(line: &str) -> impl Iterator<Item = &str> {
    let marks = line.match_indices("://");
    let addresses = marks.filter(|(at, _)| !line[..*at].ends_with("chrome"));
    addresses.map(|(at, mark)| {
        let rest = &line[at + mark.len()..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || ".-".contains(c)));
        &rest[..end.unwrap_or(rest.len())]
    })
}

fn is_private(host: &str) -> bool {
    let host = host.trim_end_matches('.');
    if host.is_empty() {
        return false;
    }
    let last = host.rsplit('.').next().unwrap_or_default();
    let bare = !host.contains('.');
    let number = !last.is_empty() && last.chars().all(|c| c.is_ascii_digit());
    bare || number || PRIVATE_HOSTS.contains(&last)
}

/// Links of a document to files that are not there.
fn links(file: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut broken = Vec::new();
    let mut code = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            code = !code;
        }
        if code {
            continue;
        }
        for rest in line.split("](").skip(1) {
            let target = rest.split([')', ' ', '#']).next().unwrap_or_default();
            let elsewhere = target.is_empty() || target.contains(':');
            if !elsewhere && !exists(target) {
                broken.push(format!(
                    "{file}:{}: the link to '{target}' leads nowhere",
                    number + 1
                ));
            }
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_modules_are_found_and_long_tests_are_not() {
        let long = "x\n".repeat(MOST_LINES + 1);
        assert!(length("crates/a/src/b.rs", &long).is_some());
        assert!(length("crates/a/src/b.rs", &long[2..]).is_none());
        assert!(length("tests/b.rs", &long).is_none());
    }

    #[test]
    fn crates_take_the_lints() {
        let good = "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n";
        assert!(lints("Cargo.toml", good).is_none());
        assert!(
            lints(
                "Cargo.toml",
                "[package]\n[dependencies]\nworkspace = true\n"
            )
            .is_some()
        );
        assert!(lints("Cargo.toml", "[workspace]\n").is_none());
    }

    #[test]
    fn machines_are_found() {
        let found = |line: &str| machine_words("a.md", line).len();
        assert_eq!(found(&format!("see {}me/a", MACHINE_PATHS[0])), 1);
        let address = |host: &str| format!("at https://{host}:80/a, twice https://{host}");
        for host in ["mirror", "10.0.0.1", "a.internal", "crates.b.corp"] {
            assert_eq!(found(&address(host)), 1, "{host}");
        }
        for host in ["crates.io", "arxiv.org", "doc.rust-lang.org"] {
            assert_eq!(found(&address(host)), 0, "{host}");
        }
        assert_eq!(found("open chrome://tracing"), 0);
    }

    #[test]
    fn links_lead_somewhere() {
        let text = "[a](b.md) [c](https://d.org/e) [f](#g)\n```\n[h](i.md)\n```\n[j](k.md#l)\n";
        let found = links("x.md", text, |target| target == "b.md");
        assert_eq!(found, ["x.md:5: the link to 'k.md' leads nowhere"]);
    }

    #[test]
    fn examples_are_compared_as_readers_see_them() {
        let source =
            "//! Text.\n//!\n//! ```no_run\n//! a();\n//!\n//! # Ok(())\n//! ```\nmod b;\n";
        assert_eq!(documented(source), ["a();", ""]);
        assert_eq!(
            fenced("x\n```sh\ny\n```\n```rust\na();\n\n```\nz", "```rust"),
            ["a();", ""]
        );
    }

    #[test]
    fn this_project_is_listed() {
        let broken = check(&crate::command::root());
        assert!(broken.is_ok());
    }
}
