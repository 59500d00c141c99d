//! The program `mlx5-model serve`: its socket, its report, its exit codes.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use mlx5_model::serve::{ServeError, Server};
use mlx5_model::{Model, ModelConfig};

use crate::client::{CONFIG, Client, DEVICE_RESET, connect, socket_path};
use crate::driver::{BYTES, Driver, IOVA, event};

fn program(socket: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlx5-model"));
    command.arg("serve").arg("--socket").arg(socket).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts the program and waits for its socket.
fn serve(socket: &Path, args: &[&str]) -> Child {
    let child = program(socket, args).spawn().unwrap();
    let start = Instant::now();
    while !socket.exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "no socket");
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
}

/// Exit code and output of a program that ends by itself.
fn ended(mut child: Child) -> (Option<i32>, String) {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it does not end: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    (status.code(), text(&stdout) + &text(&stderr))
}

#[test]
fn it_reports_when_the_client_disconnects() {
    let socket = socket_path();
    let child = serve(&socket, &[]);
    drop(connect(&socket));
    let (code, out) = ended(child);
    assert_eq!(code, Some(0), "{out}");
    for line in [
        "commands    0",
        "completions 0 (0 compressed, 0 with data in them)",
        "violations  0",
        "objects     none",
        "pages       0",
        "maps        0",
        "vectors     0",
        "peak        objects 0, pages 0, maps 0 (0 bytes), vectors 0",
        "resets      0",
    ] {
        assert!(out.lines().any(|l| l == line), "{line} in {out}");
    }
    assert!(!socket.exists());
}

#[test]
fn it_reports_when_a_signal_ends_it() {
    for name in ["TERM", "INT"] {
        let socket = socket_path();
        let (report, trace) = (socket.with_extension("report"), socket.with_extension("trace"));
        let files = ["--report", report.to_str().unwrap(), "--trace", trace.to_str().unwrap()];
        let child = serve(&socket, &files);
        signal(&child, name);
        let (code, out) = ended(child);
        assert_eq!(code, Some(0), "{out}");
        assert!(fs::read_to_string(&report).unwrap().contains("violations  0"));
        let mode = |path| fs::metadata(path).unwrap().permissions();
        assert_eq!(mode(&report), mode(&trace), "as any file that is written");
        assert_eq!(fs::read_to_string(&trace).unwrap(), "");
        assert!(!socket.exists());
        fs::remove_file(report).unwrap();
        fs::remove_file(trace).unwrap();
    }
}

/// The report that a program writes when it is asked for it.
fn asked(child: &Child, report: &Path) -> String {
    signal(child, "USR1");
    let start = Instant::now();
    while !report.exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "no report");
        std::thread::sleep(Duration::from_millis(1));
    }
    let text = fs::read_to_string(report).unwrap();
    fs::remove_file(report).unwrap();
    text
}

#[test]
fn it_reports_when_it_is_asked_and_what_was_left_at_each_release() {
    let socket = socket_path();
    let report = socket.with_extension("report");
    let child = serve(&socket, &["--report", report.to_str().unwrap()]);
    let mut d = Driver::over(Client::of_process(&socket));
    assert!(d.client.set_irqs(2, 0x24, (0, 2), &[&event(), &event()]).is_some());
    d.command(0x104, &[0; 8], 12);
    let give = [[0, 0, 0, 0, 0, 0, 0, 1], (IOVA + 0x20000).to_be_bytes()].concat();
    d.post(&[&[0x01, 0x08, 0, 0, 0, 0, 0, 1][..], &give].concat(), 16);
    assert_eq!(d.wait()[0x20], 0);
    let text = asked(&child, &report);
    for line in ["pages       1", "maps        1", "vectors     2", "resets      0"] {
        assert!(text.lines().any(|l| l == line), "{line} in {text}");
    }
    assert!(!text.contains("release:"), "{text}");
    // Bus mastering off; then reset.
    d.client.write(CONFIG, 4, &[2, 0]);
    d.client.write(CONFIG, 0x68, &[0, 0x80]);
    d.client.call(DEVICE_RESET, &[], &[]).unwrap();
    d.client.unmap((0, 0), 2).unwrap();
    assert!(d.client.set_irqs(2, 0x21, (0, 0), &[]).is_some());
    let held = |pages: u32| format!("objects 0, pages {pages}, maps 1 ({BYTES} bytes), vectors 2");
    let lines = [
        "maps        0".into(),
        "vectors     0".into(),
        format!("peak        {}", held(1)),
        "resets      2".into(),
        format!("release: bus master off after 2 commands, 0 pending: {}", held(1)),
        format!("release: function reset after 2 commands, 0 pending: {}", held(0)),
        format!("release: device reset after 2 commands, 0 pending: {}", held(0)),
    ];
    let text = asked(&child, &report);
    for line in &lines {
        assert!(text.lines().any(|l| l == line), "{line} in {text}");
    }
    drop(d);
    let (code, out) = ended(child);
    assert_eq!(code, Some(0), "{out}");
    let text = fs::read_to_string(&report).unwrap();
    fs::remove_file(report).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("release:")).count(), 3, "{text}");
}

#[test]
fn the_function_is_what_the_options_say() {
    let socket = socket_path();
    let options = ["--port", "ib", "--port-down", "--no-flr", "--without", "cqe_compression,cq_oi"];
    let child = serve(&socket, &options);
    let mut d = Driver::over(Client::of_process(&socket));
    assert_eq!(d.client.read(CONFIG, 0xa, 2).unwrap(), [0x07, 0x02], "an InfiniBand controller");
    assert_eq!(d.client.read(CONFIG, 0x67, 1).unwrap()[0] & 0x10, 0, "no reset of the function");
    d.client.write(CONFIG, 0x68, &[0, 0x80]);
    d.command(0x104, &[0; 8], 12);
    drop(d);
    let (code, out) = ended(child);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("resets      0"), "{out}");
}

/// What the program has written to its trace, as soon as it has `lines` lines.
fn traced(path: &Path, lines: usize) -> String {
    let start = Instant::now();
    loop {
        let text = fs::read_to_string(path).unwrap();
        if text.lines().count() >= lines || start.elapsed() > Duration::from_secs(60) {
            return text;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_trace_of_a_server_that_is_killed_has_all_that_completed() {
    let socket = socket_path();
    let trace = socket.with_extension("trace");
    let mut child = serve(&socket, &["--trace", trace.to_str().unwrap(), "--fault", "never:QUERY_ISSI"]);
    let mut d = Driver::over(Client::of_process(&socket));
    d.command(0x104, &[0; 8], 12);
    d.post(&[[0x01, 0x0a, 0, 0].as_slice(), &[0; 12]].concat(), 112);
    let text = traced(&trace, 1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(text, "CMD slot=0 ENABLE_HCA(0x104) opmod=0 uid=0 inlen=16 outlen=12 st=0\n");
    assert_eq!(fs::read_to_string(&trace).unwrap(), text);
    fs::remove_file(trace).unwrap();
    fs::remove_file(socket).unwrap();
}

#[test]
fn a_command_that_never_completes_is_traced_when_it_is_dropped_or_the_server_ends() {
    let never = "CMD slot=0 ENABLE_HCA(0x104) opmod=0 uid=0 inlen=16 outlen=12 st=?\n";
    for end in ["reset", "signal", "disconnect", "removed"] {
        let socket = socket_path();
        let trace = socket.with_extension("trace");
        let fault = if end == "removed" { "removed:ENABLE_HCA" } else { "never:ENABLE_HCA" };
        let child = serve(&socket, &["--trace", trace.to_str().unwrap(), "--fault", fault]);
        let mut d = Driver::over(Client::of_process(&socket));
        d.post(&[[0x01, 0x04, 0, 0].as_slice(), &[0; 12]].concat(), 12);
        d.client.register(0);
        match end {
            "reset" => d.client.write(CONFIG, 0x68, &[0, 0x80]),
            "signal" => signal(&child, "TERM"),
            _ => (),
        }
        if end == "reset" || end == "removed" {
            assert_eq!(traced(&trace, 1), never, "{end}");
        }
        drop(d);
        let (code, out) = ended(child);
        assert_eq!((code, fs::read_to_string(&trace).unwrap().as_str()), (Some(0), never), "{end}: {out}");
        fs::remove_file(trace).unwrap();
    }
}

#[test]
fn a_trace_that_cannot_be_written_is_said_and_does_not_stop_the_server() {
    let socket = socket_path();
    let (code, out) = ended(program(&socket, &["--trace", "/nowhere/at/all.log"]).spawn().unwrap());
    assert_eq!(code, Some(2), "{out}");
    assert!(out.contains("/nowhere/at/all.log") && !socket.exists(), "{out}");
    let child = serve(&socket, &["--trace", "/dev/full"]);
    let mut d = Driver::over(Client::of_process(&socket));
    d.command(0x104, &[0; 8], 12);
    drop(d);
    let (code, out) = ended(child);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("violations  0") && out.contains("error: writing /dev/full"), "{out}");
}

#[test]
fn a_violation_is_exit_code_1() {
    let socket = socket_path();
    let child = serve(&socket, &["--profile", "core"]);
    let mut client = connect(&socket);
    // Memory space on, then a write to a register that is read only.
    for (region, offset, data) in [(7_u32, 4_u64, vec![6, 0]), (0, 0x1fc, vec![0; 4])] {
        let count = data.len() as u32;
        let size = 32 + count;
        let header = [&1_u16.to_le_bytes()[..], &10_u16.to_le_bytes(), &size.to_le_bytes(), &[16, 0, 0, 0], &[0; 4]];
        let body = [&offset.to_le_bytes()[..], &region.to_le_bytes(), &count.to_le_bytes(), &data];
        std::io::Write::write_all(&mut client, &[header.concat(), body.concat()].concat()).unwrap();
    }
    drop(client);
    let (code, out) = ended(child);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("violation: BarReadOnly") && out.contains("error: the driver broke the rules once"), "{out}");
}

#[test]
fn a_socket_that_is_there_already_is_named_and_left_alone() {
    let socket = socket_path();
    fs::write(&socket, "").unwrap();
    let (code, out) = ended(program(&socket, &[]).spawn().unwrap());
    assert_eq!(code, Some(2), "{out}");
    assert!(out.contains(&format!("rm {}", socket.display())), "{out}");
    assert!(matches!(Server::bind(&Model::default(), &socket), Err(ServeError::SocketExists(path)) if path == socket));
    fs::remove_file(&socket).unwrap();
    drop(Server::bind(&Model::new(ModelConfig::core()), &socket).unwrap());
    assert!(!socket.exists(), "a server takes its socket away");
}

#[test]
fn a_socket_listens_as_soon_as_it_has_its_name() {
    let model = Model::default();
    for _ in 0..500 {
        let socket = socket_path();
        let client = std::thread::spawn({
            let socket = socket.clone();
            move || {
                loop {
                    match UnixStream::connect(&socket) {
                        Err(error) if error.kind() == ErrorKind::NotFound => (),
                        connected => return connected.map(|_| ()),
                    }
                }
            }
        });
        let server = Server::bind(&model, &socket).unwrap();
        client.join().unwrap().unwrap();
        drop(server);
    }
}

#[test]
fn wrong_arguments_are_exit_code_2() {
    for args in [
        &["--fault", "never:NOTHING"][..],
        &["--device-id", "10000"],
        &["--device-id", "1018", "--pf"],
        &["--vectors", "0"],
        &["--bar-size", "100K"],
        &["--bar-size", "M"],
        &["--profile", "eth"],
        &["--port", "ib", "--profile", "core"],
        &["--without", "colour"],
        &["--fault", "lost-cqe:0"],
    ] {
        let socket = socket_path();
        let (code, out) = ended(program(&socket, args).spawn().unwrap());
        assert_eq!(code, Some(2), "{args:?}: {out}");
        assert!(!socket.exists());
    }
    let (code, out) = ended(program(Path::new("/nowhere/at/all.sock"), &[]).spawn().unwrap());
    assert_eq!(code, Some(2), "{out}");
    assert!(out.contains("listening on the socket"), "{out}");
}
