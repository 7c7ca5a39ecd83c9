//! `honk completion` and `honk man`: made from the same table that parses.

use clap::CommandFactory as _;

use super::{
    args::{Cli, Completion, Man},
    exit::{Exit, Failure},
    output::Output,
};

/// `honk completion SHELL`
pub(crate) fn completion(out: &Output, args: &Completion) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "honk", &mut text);
    out.text(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Success)
}

/// `honk man [COMMAND]`
pub(crate) fn man(out: &Output, args: &Man) -> Result<Exit, Failure> {
    let mut command = Cli::command();
    command.build();
    for word in &args.command {
        let found = command.find_subcommand(word).cloned();
        command = found.ok_or_else(|| {
            let text = format!("there is no command {word}; `honk --help` lists them");
            Failure::new(Exit::NotFound, "not_found", text)
        })?;
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    out.text(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let mut command = Cli::command();
        command.build();
        for sub in command.get_subcommands().filter(|c| c.get_name() != "help") {
            let mut page = Vec::new();
            clap_mangen::Man::new(sub.clone())
                .render(&mut page)
                .unwrap();
            assert!(sub.get_about().is_some(), "{}", sub.get_name());
            assert!(!page.is_empty());
        }
    }
}
