//! Parses expressions.

use super::expression::{Binary, Expression, Selector};

/// Operators by their precedence, the weakest first.
const LEVELS: [&[&str]; 5] =
    [&["or"], &["and"], &["==", "!=", ">", "<", ">=", "<="], &["+", "-"], &["*", "/"]];

/// Aggregations.
const AGGREGATIONS: [&str; 3] = ["sum", "min", "max"];

impl Expression {
    /// Parses a text.
    ///
    /// # Panics
    /// When it has a form that is not known here.
    #[must_use]
    #[track_caller]
    pub fn parse(text: &str) -> Self {
        let mut parser = Parser { tokens: tokens(text), place: 0, text };
        let expression = parser.level(0);
        assert_eq!(parser.peek(), "", "{text}");
        expression
    }
}

struct Parser<'a> {
    tokens: Vec<&'a str>,
    place: usize,
    text: &'a str,
}

impl<'a> Parser<'a> {
    /// An operand and those joined to it by operators of this level or a stronger one.
    fn level(&mut self, level: usize) -> Expression {
        let Some(operators) = LEVELS.get(level) else { return self.operand() };
        let mut left = self.level(level + 1);
        while operators.contains(&self.peek()) {
            let operator = self.next().to_owned();
            let on = self.takes("on").then(|| self.names());
            if self.takes("group_left") {
                assert!(self.names().is_empty(), "{}", self.text);
            }
            let right = self.level(level + 1);
            left = Expression::Binary(Box::new(Binary { operator, on, left, right }));
        }
        left
    }

    fn operand(&mut self) -> Expression {
        if self.takes("(") {
            let inner = self.level(0);
            self.expect(")");
            return inner;
        }
        let word = self.next();
        if let Ok(number) = word.parse() {
            return Expression::Number(number);
        }
        let names = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
        assert!(word.chars().all(names) && !word.is_empty(), "{word:?} in {}", self.text);
        if AGGREGATIONS.contains(&word) {
            return self.aggregation(word);
        }
        if self.peek() == "(" {
            let arguments = self.arguments();
            return Expression::Call { function: word.to_owned(), arguments };
        }
        self.selector(word)
    }

    fn aggregation(&mut self, operator: &str) -> Expression {
        let by = if self.takes("by") { self.names() } else { Vec::new() };
        let mut of = self.arguments();
        assert_eq!(of.len(), 1, "{}", self.text);
        Expression::Aggregation { operator: operator.to_owned(), by, of: Box::new(of.remove(0)) }
    }

    fn arguments(&mut self) -> Vec<Expression> {
        self.expect("(");
        let mut arguments = Vec::new();
        while !self.takes(")") {
            arguments.push(self.level(0));
            assert!(self.takes(",") || self.peek() == ")", "{}", self.text);
        }
        arguments
    }

    fn names(&mut self) -> Vec<String> {
        self.expect("(");
        let mut names = Vec::new();
        while !self.takes(")") {
            names.push(self.next().to_owned());
            let _ = self.takes(",");
        }
        names
    }

    fn selector(&mut self, name: &str) -> Expression {
        let mut labels = Vec::new();
        if self.takes("{") {
            while !self.takes("}") {
                let label = self.next().to_owned();
                self.expect("=");
                labels.push((label, self.next().trim_matches('"').to_owned()));
                let _ = self.takes(",");
            }
        }
        let window = self.takes("[").then(|| {
            let window = seconds(self.next());
            self.expect("]");
            window
        });
        Expression::Selector(Selector { name: name.to_owned(), labels, window })
    }

    fn peek(&self) -> &'a str {
        self.tokens.get(self.place).copied().unwrap_or_default()
    }

    fn next(&mut self) -> &'a str {
        let token = self.peek();
        self.place += 1;
        token
    }

    fn takes(&mut self, token: &str) -> bool {
        let is_next = self.peek() == token;
        self.place += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, token: &str) {
        let found = self.next();
        assert_eq!(found, token, "{}", self.text);
    }
}

/// Words, quoted texts and operators.
fn tokens(mut text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    loop {
        text = text.trim_start();
        let Some(first) = text.chars().next() else { return tokens };
        let in_word = |letter: char| letter.is_ascii_alphanumeric() || "_:.".contains(letter);
        let length = if first == '"' {
            text[1..].find('"').expect("the end of a quoted text") + 2
        } else if in_word(first) {
            text.find(|letter| !in_word(letter)).unwrap_or(text.len())
        } else if ["==", "!=", ">=", "<=", "=~", "!~"].iter().any(|it| text.starts_with(it)) {
            2
        } else {
            first.len_utf8()
        };
        let (token, rest) = text.split_at(length);
        tokens.push(token);
        text = rest;
    }
}

/// The seconds of a time such as `5m`.
fn seconds(text: &str) -> f64 {
    let (number, unit) = text.split_at(text.len() - 1);
    let unit = match unit {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        other => panic!("the unit {other} of {text}"),
    };
    number.parse::<f64>().expect("a number") * unit
}
