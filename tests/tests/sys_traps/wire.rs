//! Frames no ordinary socket sends.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use honk_tests::client::PATIENCE;
use honk_tests::frame;
use honk_tests::kernel::packet::{AH, DEST_OPTS, HOP_BY_HOP, Packet, SYN, tcp, udp};
use honk_tests::scene::{PROXIED, PROXIED_V6, Scene, at, config_with, play};
use honk_tests::serve::ECHO;
use honk_tests::wait;

/// A frame of the first client for the gateway's LAN side.
fn from_client(scene: &Scene, p: Packet) -> Result<Packet> {
    let client = frame::mac_of(&scene.lab.hc1, "eth0")?;
    let gateway = frame::mac_of(&scene.lab.hg, "lan")?;
    Ok(p.smac(client).dmac(gateway))
}

fn send(scene: &Scene, frame: &[u8]) -> Result<()> {
    scene.lab.hc1.run(|| frame::send("eth0", &[frame.to_vec()]))
}

#[test]
fn t12_a_retransmitted_syn_is_not_judged_again() {
    play("t12_a_retransmitted_syn_is_not_judged_again", |scene| {
        let honk = scene.honk()?;
        // An address nobody has: no kernel answers the SYN-ACK with a reset.
        let syn = |seq| {
            let p = tcp("10.66.0.99:40001", &at(PROXIED, ECHO).to_string(), SYN).seq(seq);
            from_client(scene, p).map(|p| p.wire())
        };
        let seen = |stat| honk.stat(stat);
        send(scene, &syn(1000)?)?;
        wait::ok("the flow", PATIENCE, || {
            ensure!(seen("proxy_new")? > 0.0, "no flow");
            Ok(())
        })?;
        honk.reload(&config_with(&format!("dip({PROXIED}) -> direct")))?;
        let before = seen("syn_retransmit")?;
        send(scene, &syn(1000)?)?;
        wait::ok("the retransmission", PATIENCE, || {
            ensure!(seen("syn_retransmit")? == before + 1.0, "not known");
            Ok(())
        })?;
        scene.wan.settle()?;
        ensure!(scene.leaked(PROXIED)? == 0, "it was judged again");
        // Another number is another connection.
        send(scene, &syn(5000)?)?;
        wait::ok("the new connection", PATIENCE, || {
            ensure!(
                scene.leaked(PROXIED)? > 0,
                "it was not judged by the new rules"
            );
            Ok(())
        })
    });
}

#[test]
fn t35_tagged_frames_are_left_alone() {
    play("t35_tagged_frames_are_left_alone", |scene| {
        let honk = scene.honk_with("dip(0.0.0.0/0) -> proxy")?;
        let p = udp("10.66.0.11:5000", &at(PROXIED, ECHO).to_string());
        let plain = from_client(scene, p)?.wire();
        let tag = [0x81, 0x00, 0x00, 0x07];
        let tagged = [&plain[..12], &tag, &plain[12..]].concat();
        for n in 1..=5 {
            send(scene, &tagged)?;
            wait::ok("a tagged frame", PATIENCE, || {
                ensure!(honk.stat("vlan_pass")? >= f64::from(n), "not seen");
                Ok(())
            })?;
        }
        ensure!(honk.stat("new_flows")? == 0.0, "a tagged frame was judged");
        send(scene, &plain)?;
        wait::ok("the plain frame", PATIENCE, || {
            ensure!(honk.stat("new_flows")? == 1.0, "not judged");
            Ok(())
        })?;
        ensure!(scene.leaked(PROXIED)? == 0, "something left");
        Ok(())
    });
}

#[test]
fn t42_extension_headers_do_not_hide_the_ports() {
    play("t42_extension_headers_do_not_hide_the_ports", |scene| {
        let honk = scene.honk()?;
        let socket = scene.lab.hc1.run(|| UdpSocket::bind("[fd66::11]:0"))?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        let own = socket.local_addr()?;
        let to = at(PROXIED_V6, ECHO);
        let datagram = |headers: &[u8]| {
            let p = udp(&own.to_string(), &to.to_string()).payload(b"hidden");
            from_client(scene, p.extensions(headers)).map(|p| p.wire())
        };
        for headers in [&[HOP_BY_HOP, DEST_OPTS][..], &[DEST_OPTS; 8]] {
            // Datagrams may be lost before the flow is known upstream.
            let frame = datagram(headers)?;
            wait::ok("the echo", PATIENCE, || {
                send(scene, &frame)?;
                echo(&socket, to)
            })
            .with_context(|| format!("{headers:?}"))?;
        }
        ensure!(scene.leaked(PROXIED_V6)? == 0, "it went past the proxy");
        let before = honk.stat("ext_drop")?;
        send(scene, &datagram(&[DEST_OPTS; 9])?)?;
        wait::ok("the drop", PATIENCE, || {
            ensure!(honk.stat("ext_drop")? == before + 1.0, "not dropped");
            Ok(())
        })?;
        ensure!(scene.leaked(PROXIED_V6)? == 0, "nine headers left");
        // What is behind an authentication header is nobody's business.
        let sealed = datagram(&[AH])?;
        wait::ok("the sealed packet", PATIENCE, || {
            send(scene, &sealed)?;
            ensure!(scene.leaked(PROXIED_V6)? > 0, "it did not pass");
            Ok(())
        })
    });
}

fn echo(socket: &UdpSocket, from: SocketAddr) -> Result<()> {
    let mut buffer = [0; 64];
    let (n, peer) = socket.recv_from(&mut buffer)?;
    ensure!(
        peer == from && buffer[..n] == *b"hidden",
        "{n} bytes of {peer}"
    );
    Ok(())
}
