//! Tells public IP addresses from private ones, and says why an address is not public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns why an address is not on the public internet; `None` if it is.
pub(in crate::toolset) fn why_private(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => why_private_v4(v4),
        IpAddr::V6(v6) => why_private_v6(v6),
    }
}

fn why_private_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, d] = address.octets();
    Some(match (a, b, c, d) {
        (127, ..) => "a loopback address",
        (169, 254, 169, 254) | (168, 63, 129, 16) | (100, 100, 100, 200) => "a cloud's metadata address",
        (169, 254, ..) => "a link-local address",
        (10, ..) | (172, 16..=31, ..) | (192, 168, ..) => "a private address",
        (100, 64..=127, ..) => "an address inside a provider's network",
        (0, ..) => "an address of this machine",
        (192, 0, 0, _) | (192, 88, 99, _) => "a special-purpose address",
        (192, 0, 2, _) | (198, 51, 100, _) | (203, 0, 113, _) => "an address for documentation",
        (198, 18 | 19, ..) => "an address for benchmarks",
        (224..=239, ..) => "a multicast address",
        (255, 255, 255, 255) => "the broadcast address",
        (240.., ..) => "a reserved address",
        _ => return None,
    })
}

fn why_private_v6(address: Ipv6Addr) -> Option<&'static str> {
    let parts = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    let last = v4(parts[6], parts[7]);
    match parts {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("an address of this machine"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("a loopback address"),
        // Check an embedded IPv4 address by itself.
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => why_private_v4(last),
        [0x2002, high, low, ..] => why_private_v4(v4(high, low)),
        [0x64, 0xff9b, 1, ..] => Some("an address of a local translator"),
        [0x2001, 0, ..] => Some("a tunnel's address"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0x0fff, ..] => Some("an address for documentation"),
        [0x2001, 2 | 0x10..=0x2f, ..] => Some("a special-purpose address"),
        [0xfe80..=0xfebf, ..] => Some("a link-local address"),
        [0xfec0..=0xfeff, ..] | [0xfc00..=0xfdff, ..] => Some("a private address"),
        [0xff00..=0xffff, ..] => Some("a multicast address"),
        // ISATAP: an IPv4 address behind any prefix.
        [.., 0 | 0x200, 0x5efe, _, _] => why_private_v4(last),
        [0x2000..=0x3fff, ..] => None,
        _ => Some("not an address of the public internet"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_known_in_all_their_dresses() {
        for (text, why) in [
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("0.0.0.0", "this machine"),
            ("0.1.2.3", "this machine"),
            ("10.0.0.1", "private"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.168.1.1", "private"),
            ("100.64.0.1", "provider"),
            ("169.254.0.1", "link-local"),
            ("169.254.169.254", "metadata"),
            ("168.63.129.16", "metadata"),
            ("100.100.100.200", "metadata"),
            ("192.0.0.170", "special"),
            ("192.0.2.1", "documentation"),
            ("198.18.0.1", "benchmarks"),
            ("224.0.0.1", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "broadcast"),
            ("::", "this machine"),
            ("::1", "loopback"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:10.1.2.3", "private"),
            ("::127.0.0.1", "not an address"),
            ("64:ff9b::7f00:1", "loopback"),
            ("64:ff9b::a9fe:a9fe", "metadata"),
            ("64:ff9b:1::1", "translator"),
            ("2002:7f00:1::", "loopback"),
            ("2002:c0a8:101::1", "private"),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "tunnel"),
            ("2001:db8::1", "documentation"),
            ("fe80::1", "link-local"),
            ("fec0::1", "private"),
            ("fc00::1", "private"),
            ("fd00:ec2::254", "private"),
            ("ff02::1", "multicast"),
            ("2606:4700::5efe:7f00:1", "loopback"),
            ("2606:4700::200:5efe:10.0.0.1", "private"),
            ("100::1", "not an address"),
            ("5f00::1", "not an address"),
        ] {
            let found = why_private(text.parse().unwrap()).unwrap_or("nothing");
            assert!(found.contains(why), "{text}: {found}");
        }
    }

    #[test]
    fn public_addresses_are_public() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "93.184.216.34",
            "172.32.0.1",
            "100.128.0.1",
            "169.253.1.1",
            "2606:4700:4700::1111",
            "2a00:1450:4001:81b::200e",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ] {
            assert_eq!(why_private(text.parse().unwrap()), None, "{text}");
        }
    }
}
