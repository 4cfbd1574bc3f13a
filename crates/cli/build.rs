//! Tells the program which commit it is built from, where that is known.

use std::process::Command;

fn main() {
    // A change of any crate may make the tree differ from the commit.
    println!("cargo::rerun-if-changed=..");
    println!("cargo::rerun-if-changed=../../.git/logs/HEAD");
    println!("cargo::rerun-if-env-changed=TRACK_COMMIT");
    // Packagers build from archives and may name the commit themselves.
    if std::env::var_os("TRACK_COMMIT").is_some() {
        return;
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", ".."]);
        let mark = match changed.as_deref() {
            Some("") | None => "",
            Some(_) => " with changes",
        };
        println!("cargo::rustc-env=TRACK_COMMIT={commit}{mark}");
    }
}
