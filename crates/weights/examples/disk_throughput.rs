//! Measures how fast weights come from disk: `disk_throughput [folder] [MiB]`. Writes a file there, and deletes it.
//!
//! A copy queue is imitated by one thread that reads all tensors panel by panel and does nothing with them.

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("only Linux lets a program empty the page cache of a file");
}

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    linux::main()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::error::Error;
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};
    use std::time::Instant;

    use plimsoll_weights::{StoredTensor, TensorFile};
    use rustix::fs::{Advice, fadvise};

    /// The rows of a panel of a matrix of some thousand columns.
    const PANEL_BYTES: usize = 160 << 10;
    const TENSOR_MIB: u64 = 13;

    pub(super) fn main() -> Result<(), Box<dyn Error>> {
        let mut args = std::env::args().skip(1);
        let folder = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
        let size: u64 = args.next().map_or(Ok(1024), |mib| mib.parse())? << 20;
        let file = tempfile::Builder::new().suffix(".safetensors").tempfile_in(folder)?;
        let tensor_count = write(file.as_file(), size)?;
        println!("{tensor_count} tensors of {TENSOR_MIB} MiB, read in panels of {} KiB", PANEL_BYTES >> 10);

        make_cold(file.path())?;
        measure("cold, plain reads", file.path(), read_plainly)?;
        measure("warm, plain reads", file.path(), read_plainly)?;
        measure("warm", file.path(), |path| read(&TensorFile::open(path)?, 0))?;
        for tensors_ahead in [0, 1, 2, 4] {
            make_cold(file.path())?;
            let name = format!("cold, {tensors_ahead} tensors ahead");
            measure(&name, file.path(), |path| read(&TensorFile::open(path)?, tensors_ahead))?;
        }
        let opened = TensorFile::open(file.path())?;
        make_cold(file.path())?;
        for pass in 1..=3 {
            measure(&format!("pass {pass} of a stream"), file.path(), |_| read(&opened, 2))?;
        }
        Ok(())
    }

    fn measure(
        what: &str,
        path: &Path,
        read: impl FnOnce(&Path) -> Result<String, Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let size = std::fs::metadata(path)?.len();
        let start = Instant::now();
        let details = read(path)?;
        let seconds = start.elapsed().as_secs_f64();
        println!("{what:24} {:6.2} GB/s  {details}", size as f64 / 1e9 / seconds);
        Ok(())
    }

    fn read_plainly(path: &Path) -> Result<String, Box<dyn Error>> {
        let (file, mut panel) = (File::open(path)?, vec![0; PANEL_BYTES]);
        let len = file.metadata()?.len();
        for start in (0..len).step_by(PANEL_BYTES) {
            let panel = &mut panel[..PANEL_BYTES.min((len - start) as usize)];
            file.read_exact_at(panel, start)?;
        }
        Ok(String::new())
    }

    fn read(file: &TensorFile, tensors_ahead: usize) -> Result<String, Box<dyn Error>> {
        let before = file.disk_reads();
        let tensors: Vec<StoredTensor> = file.tensors().collect();
        let mut panel = vec![0; PANEL_BYTES];
        if tensors_ahead > 0 {
            tensors.iter().take(tensors_ahead).for_each(|tensor| tensor.bytes.read_ahead());
        }
        for (idx, tensor) in tensors.iter().enumerate() {
            if tensors_ahead > 0 && idx + tensors_ahead < tensors.len() {
                tensors[idx + tensors_ahead].bytes.read_ahead();
            }
            let len = tensor.bytes.len();
            for start in (0..len).step_by(PANEL_BYTES) {
                let range = start..len.min(start + PANEL_BYTES);
                tensor.bytes.read_at(range.clone(), &mut panel[..range.len()])?;
            }
        }
        let after = file.disk_reads();
        let mib = |after: u64, before: u64| (after - before) >> 20;
        Ok(format!(
            "direct {} MiB, cached {} MiB, from the window {} MiB",
            mib(after.direct.0, before.direct.0),
            mib(after.cached.0, before.cached.0),
            mib(after.from_window.0, before.from_window.0),
        ))
    }

    /// Writes a file of noise, and returns how many tensors it has.
    fn write(mut file: &File, size: u64) -> Result<u64, Box<dyn Error>> {
        let (tensor_bytes, tensor_count) = (TENSOR_MIB << 20, (size / (TENSOR_MIB << 20)).max(1));
        let entries: Vec<String> = (0..tensor_count)
            .map(|idx| {
                let (start, end) = (idx * tensor_bytes, (idx + 1) * tensor_bytes);
                format!(r#""{idx:06}":{{"dtype":"U8","shape":[{tensor_bytes}],"data_offsets":[{start},{end}]}}"#)
            })
            .collect();
        let header = format!("{{{}}}", entries.join(","));
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(header.as_bytes())?;
        let mut state = 1u64;
        let mut noise = vec![0; tensor_bytes as usize];
        for _ in 0..tensor_count {
            for word in noise.chunks_exact_mut(8) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_le_bytes());
            }
            file.write_all(&noise)?;
        }
        file.sync_all()?;
        Ok(tensor_count)
    }

    fn make_cold(path: &Path) -> Result<(), Box<dyn Error>> {
        Ok(fadvise(File::open(path)?, 0, None, Advice::DontNeed)?)
    }
}
