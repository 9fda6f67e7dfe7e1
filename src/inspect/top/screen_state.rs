//! State that keys change: the list in focus, scroll offsets, and the order of services.

use clap::ValueEnum;

use crate::show::Order;

engine::named! {
    /// A list of the screen.
    #[derive(Default)]
    pub enum ScreenList {
        /// Services with connections.
        #[default]
        Services = "services",
        /// Draining endpoints.
        Draining = "draining",
        /// Problems of the daemon.
        Problems = "problems",
    }
}

/// A key with a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// End.
    Quit,
    /// Stop the program until it is continued.
    Suspend,
    /// Move the focus to the next list.
    Next,
    /// Move the focus to the previous list.
    Previous,
    /// Scroll up by one row.
    Up,
    /// Scroll down by one row.
    Down,
    /// Scroll up by one page.
    PageUp,
    /// Scroll down by one page.
    PageDown,
    /// Go to the first row.
    Home,
    /// Go to the last row.
    End,
    /// Sort services by the next column.
    Sort,
}

/// Effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Draw again.
    Draw,
    /// Read services in this order.
    Sort(Order),
    /// Quit.
    Quit,
    /// Suspend.
    Suspend,
}

/// State that keys change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScreenState {
    /// The list that scrolls and gets the most lines.
    pub focus: ScreenList,
    /// The order of services.
    pub order: Order,
    /// First visible rows, in the order of [`ScreenList::ALL`]. Drawing limits them.
    pub(super) offsets: [usize; 3],
    /// Numbers of visible rows at the last draw.
    pub(super) heights: [usize; 3],
}

impl ScreenList {
    pub(super) fn place(self) -> usize {
        self as usize
    }
}

impl ScreenState {
    /// Returns the state at the first rows of all lists, with this order of services.
    pub fn new(order: Order) -> Self {
        Self { order, ..Self::default() }
    }

    /// Applies a key.
    pub fn press(&mut self, key: Key) -> Action {
        let place = self.focus.place();
        let (offset, page) = (self.offsets[place], self.heights[place].max(1));
        self.offsets[place] = match key {
            Key::Up => offset.saturating_sub(1),
            Key::Down => offset.saturating_add(1),
            Key::PageUp => offset.saturating_sub(page),
            Key::PageDown => offset.saturating_add(page),
            Key::Home => 0,
            Key::End => usize::MAX,
            Key::Quit | Key::Suspend | Key::Next | Key::Previous | Key::Sort => offset,
        };
        match key {
            Key::Quit => return Action::Quit,
            Key::Suspend => return Action::Suspend,
            Key::Next => self.focus = ScreenList::ALL[(place + 1) % ScreenList::ALL.len()],
            Key::Previous => {
                self.focus =
                    ScreenList::ALL[(place + ScreenList::ALL.len() - 1) % ScreenList::ALL.len()]
            }
            Key::Sort => {
                let all = Order::value_variants();
                self.order = all[(self.order as usize + 1) % all.len()];
                self.offsets[ScreenList::Services.place()] = 0;
                return Action::Sort(self.order);
            }
            Key::Up | Key::Down | Key::PageUp | Key::PageDown | Key::Home | Key::End => {}
        }
        Action::Draw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_focus_goes_round() {
        let mut state = ScreenState::default();
        let mut seen = Vec::new();
        for key in [Key::Next, Key::Next, Key::Next, Key::Previous] {
            assert_eq!(state.press(key), Action::Draw);
            seen.push(state.focus);
        }
        assert_eq!(
            seen,
            [
                ScreenList::Draining,
                ScreenList::Problems,
                ScreenList::Services,
                ScreenList::Problems
            ]
        );
        assert_eq!(state.press(Key::Quit), Action::Quit);
    }

    #[test]
    fn the_order_goes_round_and_shows_the_first_rows() {
        let mut state = ScreenState { offsets: [7, 7, 7], ..ScreenState::default() };
        let orders = [0; 5].map(|_| match state.press(Key::Sort) {
            Action::Sort(order) => order,
            other @ (Action::Draw | Action::Quit | Action::Suspend) => panic!("{other:?}"),
        });
        assert_eq!(orders, [Order::Active, Order::New, Order::Draining, Order::Name, Order::Began]);
        assert_eq!(state.offsets, [0, 7, 7]);
    }

    #[test]
    fn only_the_list_with_the_focus_is_scrolled() {
        let mut state = ScreenState {
            focus: ScreenList::Draining,
            heights: [1, 5, 1],
            ..ScreenState::default()
        };
        let mut offset = |key| {
            state.press(key);
            assert_eq!((state.offsets[0], state.offsets[2]), (0, 0));
            state.offsets[1]
        };
        let keys = [Key::Up, Key::Down, Key::PageDown, Key::PageUp, Key::End, Key::Down, Key::Home];
        assert_eq!(keys.map(&mut offset), [0, 1, 6, 1, usize::MAX, usize::MAX, 0]);
    }
}
