//! How a program that runs an agent reaches the tools of its task.
//!
//! The program gets an MCP server whose command is `longhaul mcp --task`. MCP clients start such a command
//! themselves, two or three processes away, and pass on nothing but stdin, stdout and variables. So no open file
//! can be inherited. The command connects to a socket of the process that owns the task instead: in a directory
//! for the owner alone, with a secret that is made anew each time the program is started. Both come in variables.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The variable with the path of a task's socket.
pub const TASK_SOCKET: &str = "LONGHAUL_TASK_SOCKET";
/// The variable with the secret that the socket asks for.
pub const TASK_SECRET: &str = "LONGHAUL_TASK_SECRET";
/// What the owner of a task says to whom it lets in.
pub(crate) const WELCOME: &str = "welcome";
/// The longest path of a socket that every system accepts.
const LONGEST: usize = 100;

/// Passes the messages of an MCP client on to the process that owns a task, and its answers back, until one of
/// them ends. This is all that `longhaul mcp --task` does: it knows neither the task nor the store.
///
/// # Errors
/// Fails if the socket cannot be reached, or does not accept the secret: then the task is not running any more.
pub fn forward_task_tools(
    socket: &Path,
    secret: &str,
    mut input: impl Read + Send + 'static,
    mut output: impl Write,
) -> io::Result<()> {
    let (path, _dir) = short_path(socket)?;
    let mut stream = UnixStream::connect(path)?;
    stream.write_all(format!("{secret}\n").as_bytes())?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let mut welcome = String::new();
    answers.read_line(&mut welcome)?;
    if welcome.trim_end() != WELCOME {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the task is not running any more"));
    }
    std::thread::spawn(move || {
        let _ = io::copy(&mut input, &mut stream);
        // The owner ends the connection then, and with it the answers.
        let _ = stream.shutdown(Shutdown::Write);
    });
    loop {
        let read = answers.fill_buf()?;
        if read.is_empty() {
            return Ok(());
        }
        output.write_all(read)?;
        output.flush()?;
        let read = read.len();
        answers.consume(read);
    }
}

/// A path of this socket that is short enough for the system, and what must stay open while it is used.
pub(crate) fn short_path(socket: &Path) -> io::Result<(PathBuf, Option<std::fs::File>)> {
    let (Some(dir), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is not the path of a socket"));
    };
    if socket.as_os_str().len() <= LONGEST {
        return Ok((socket.to_owned(), None));
    }
    let dir = std::fs::File::open(dir)?;
    let short = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
    Ok((short, Some(dir)))
}
