//! The rules a failed parse would have accepted, in words people know.

use crate::parse::Rule;

/// Expected tokens listed at most.
const EXPECTED: usize = 6;

/// What would have been legal, most telling first.
pub(crate) fn expected(wanted: &[Rule]) -> Vec<&'static str> {
    let mut words = Vec::new();
    for one in wanted {
        let word = rename(*one);
        if !word.is_empty() && !words.contains(&word) {
            words.push(word);
        }
    }
    words.sort_by_key(|word| ORDER.iter().position(|known| known == word));
    words.truncate(EXPECTED);
    words
}

/// Names people know, in the order they are listed.
const ORDER: [&str; 22] = [
    "`,`",
    "`->`",
    "`&&`",
    "`:`",
    "`(`",
    "a function call",
    "a rule",
    "a setting",
    "a section",
    "a link",
    "a path",
    "a name",
    "a value",
    "an outbound",
    "`[`",
    "a note",
    "`!`",
    "`{`",
    "`)`",
    "`]`",
    "`}`",
    "end of file",
];

fn rename(wanted: Rule) -> &'static str {
    match wanted {
        Rule::comma => "`,`",
        Rule::arrow | Rule::via => "`->`",
        Rule::and => "`&&`",
        Rule::colon => "`:`",
        Rule::lparen => "`(`",
        Rule::rparen => "`)`",
        Rule::lbrace => "`{`",
        Rule::rbrace => "`}`",
        Rule::lbrack | Rule::annotation => "`[`",
        Rule::rbrack => "`]`",
        Rule::not => "`!`",
        Rule::function | Rule::functions | Rule::func_name => "a function call",
        Rule::rule => "a rule",
        Rule::declaration => "a setting",
        Rule::section
        | Rule::include_section
        | Rule::node_section
        | Rule::subscription_section
        | Rule::dns_section
        | Rule::upstream_section
        | Rule::ttl_section
        | Rule::top => "a section",
        Rule::link_item | Rule::link | Rule::bare_link | Rule::tag => "a link",
        Rule::include_item | Rule::bare_path => "a path",
        Rule::name | Rule::bare => "a name",
        Rule::literal
        | Rule::value
        | Rule::arg
        | Rule::args
        | Rule::arg_key
        | Rule::bare_value
        | Rule::quoted
        | Rule::stray
        | Rule::sq
        | Rule::dq => "a value",
        Rule::note => "a note",
        Rule::outbound => "an outbound",
        Rule::EOI => "end of file",
        Rule::file
        | Rule::item
        | Rule::items
        | Rule::links
        | Rule::paths
        | Rule::dns_items
        | Rule::rest_of_items
        | Rule::rest_of_links
        | Rule::rest_of_paths
        | Rule::rest_of_dns
        | Rule::link_body
        | Rule::in_colon
        | Rule::link_char
        | Rule::in_doubt
        | Rule::comment_in
        | Rule::bare_head
        | Rule::bare_char
        | Rule::mark
        | Rule::wide
        | Rule::lookalike
        | Rule::gap
        | Rule::hgap
        | Rule::line_comment
        | Rule::block_comment
        | Rule::hws
        | Rule::nl
        | Rule::BOM => "",
    }
}
