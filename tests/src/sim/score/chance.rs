//! Chance for simulations: a seed and a purpose give the same numbers everywhere.

/// A stream of numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The stream of a purpose, named by numbers: what one policy does shifts nobody else's luck.
    pub fn of(parts: &[u64]) -> Self {
        let mut chance = Self(0x5c0_4e5);
        for part in parts {
            chance.0 = chance.number() ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        chance
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let a = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let b = (a ^ (a >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        b ^ (b >> 31)
    }

    /// From 0 to less than 1.
    pub fn unit(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// One of so many.
    pub fn below(&mut self, count: usize) -> usize {
        (self.unit() * count as f64) as usize
    }

    /// Waiting time for something that happens once per `mean`.
    pub fn wait(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// A factor around 1.
    pub fn spread(&mut self, sigma: f64) -> f64 {
        (sigma * self.normal()).exp()
    }

    /// Gamma for a shape of at least 1 (Marsaglia and Tsang).
    fn gamma(&mut self, shape: f64) -> f64 {
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && (1.0 - self.unit()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }

    /// Beta for shapes of at least 1.
    pub fn beta(&mut self, a: f64, b: f64) -> f64 {
        let (x, y) = (self.gamma(a), self.gamma(b));
        x / (x + y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_what_they_should_be() {
        let mut chance = Chance::of(&[1]);
        let mean = |f: &mut dyn FnMut() -> f64| (0..20_000).map(|_| f()).sum::<f64>() / 20_000.0;
        assert!((mean(&mut || chance.unit()) - 0.5).abs() < 0.02);
        assert!((mean(&mut || chance.wait(2.0)) - 2.0).abs() < 0.1);
        assert!((mean(&mut || chance.beta(3.0, 1.0)) - 0.75).abs() < 0.02);
        assert!((mean(&mut || chance.spread(0.15)) - 1.011).abs() < 0.02);
    }

    #[test]
    fn purposes_do_not_disturb_each_other() {
        let first = |parts: &[u64]| Chance::of(parts).number();
        assert_eq!(first(&[1, 2]), first(&[1, 2]));
        assert_ne!(first(&[1, 2]), first(&[2, 1]));
        assert_ne!(first(&[1]), first(&[1, 0]));
    }
}
