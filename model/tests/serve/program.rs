//! The program `mlx5-model serve`: its socket, its report, its exit codes.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use mlx5_model::serve::{ServeError, Server};
use mlx5_model::{Model, ModelConfig};

use crate::client::{connect, socket_path};

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

fn ended(child: Child) -> (Option<i32>, String) {
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
    for line in ["commands    0", "violations  0", "objects     none", "pages       0"] {
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
        assert_eq!(fs::read_to_string(&trace).unwrap(), "");
        assert!(!socket.exists());
        fs::remove_file(report).unwrap();
        fs::remove_file(trace).unwrap();
    }
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
fn wrong_arguments_are_exit_code_2() {
    for args in [
        &["--fault", "never:NOTHING"][..],
        &["--device-id", "10000"],
        &["--device-id", "1018", "--pf"],
        &["--vectors", "0"],
        &["--bar-size", "100K"],
        &["--bar-size", "M"],
        &["--profile", "eth"],
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
