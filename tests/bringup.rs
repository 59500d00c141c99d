//! Bring-up and teardown against the model: the order of commands is Linux's, and everything comes back.

mod control;

use control::{assert_clean, model, open};
use mlx5::{DeviceConfig, Error, Failure, Health};
use mlx5_model::trace::{Line, read};
use mlx5_model::{CapConfig, Fault, Model, ModelConfig};

const PF: u16 = 0x1017;
const VF: u16 = 0x1018;

fn names(model: &Model) -> Vec<&'static str> {
    model.commands().iter().map(|c| c.name).collect()
}

/// Slot, name, opcode, op_mod and lengths of a command.
fn row(line: &Line) -> String {
    let Line { slot, name, opcode, op_mod, in_len, out_len, .. } = line;
    format!("{slot} {name} {opcode:#x} {op_mod} {in_len} {out_len}")
}

/// What Linux's mlx5_core asks of a function without Ethernet and RoCE drivers.
fn linux() -> Vec<String> {
    read(include_str!("data/linux-core-only.log")).iter().map(|(_, line)| row(line)).collect()
}

#[test]
fn commands_slots_and_lengths_are_those_of_linux() {
    let model = Model::new(ModelConfig::core());
    let mut config = DeviceConfig::new(VF);
    config.completion_vectors = 0;
    open(&model, config).unwrap().close().unwrap();
    let ours: Vec<String> = model.commands().iter().map(|record| row(&Line::from(record))).collect();
    assert_eq!(ours, linux());
    assert_clean(&model, "closed");
}

#[test]
fn a_virtual_function_with_roce_is_brought_up_and_down_in_order() {
    let model = model();
    open(&model, DeviceConfig::new(VF)).unwrap().close().unwrap();
    let up = [
        "ENABLE_HCA",
        "QUERY_ISSI",
        "SET_ISSI",
        "QUERY_PAGES",
        "MANAGE_PAGES",
        "QUERY_HCA_CAP",
        "QUERY_HCA_CAP",
        "SET_HCA_CAP",
        "QUERY_HCA_CAP",
        "SET_HCA_CAP",
        "QUERY_HCA_CAP",
        "QUERY_HCA_CAP",
        "QUERY_PAGES",
        "MANAGE_PAGES",
        "INIT_HCA",
        "SET_DRIVER_VERSION",
        "QUERY_HCA_CAP",
        "QUERY_HCA_CAP",
        "QUERY_HCA_CAP",
        "QUERY_ADAPTER",
        "ALLOC_UAR",
        "CREATE_EQ",
        "CREATE_EQ",
        "CREATE_EQ",
        "CREATE_EQ",
        "QUERY_VPORT_STATE",
        "QUERY_NIC_VPORT_CONTEXT",
        "MODIFY_NIC_VPORT_CONTEXT",
        "SET_ROCE_ADDRESS",
    ];
    let down = [
        "SET_ROCE_ADDRESS",
        "MODIFY_NIC_VPORT_CONTEXT",
        "DESTROY_EQ",
        "DESTROY_EQ",
        "DESTROY_EQ",
        "DESTROY_EQ",
        "DEALLOC_UAR",
        "TEARDOWN_HCA",
        "MANAGE_PAGES",
        "DISABLE_HCA",
    ];
    assert_eq!(names(&model), [&up[..], &down[..]].concat());
    assert_clean(&model, "closed");
}

/// What Ethernet has is not asked of an InfiniBand port: no NIC context, no state by QUERY_VPORT_STATE, no RoCE.
#[test]
fn an_infiniband_port_is_asked_by_its_own_commands() {
    let model = Model::new(ModelConfig::infiniband());
    open(&model, DeviceConfig::new(VF)).unwrap().close().unwrap();
    let names = names(&model);
    let after = names.iter().rposition(|name| *name == "CREATE_EQ").unwrap() + 1;
    let down = ["DESTROY_EQ"; 4];
    let port = ["QUERY_HCA_VPORT_CONTEXT", "QUERY_HCA_VPORT_GID", "QUERY_HCA_VPORT_PKEY"];
    assert_eq!(names[after..after + 7], [&port[..], &down[..]].concat());
    let ethernet = |name: &&&str| name.contains("NIC_VPORT") || name.contains("ROCE") || **name == "QUERY_VPORT_STATE";
    assert_eq!(names.iter().filter(ethernet).collect::<Vec<_>>(), Vec::<&&str>::new());
    assert_clean(&model, "closed");
}

#[test]
fn a_physical_function_sets_the_host_endianness_before_capabilities() {
    let model = Model::new(ModelConfig { device_id: PF, ..ModelConfig::default() });
    open(&model, DeviceConfig::new(PF)).unwrap().close().unwrap();
    let names = names(&model);
    let at = names.iter().position(|n| n.starts_with("ACCESS_REG")).unwrap();
    assert_eq!((names[at - 1], names[at + 1]), ("MANAGE_PAGES", "QUERY_HCA_CAP"));
    assert_clean(&model, "closed");
}

#[test]
fn a_firmware_that_wants_no_pages_is_given_none() {
    let model = Model::new(ModelConfig { boot_pages: 0, init_pages: 0, ..ModelConfig::default() });
    open(&model, DeviceConfig::new(VF)).unwrap().close().unwrap();
    assert!(!names(&model).contains(&"MANAGE_PAGES"));
    assert_clean(&model, "closed");
}

#[test]
fn many_pages_are_given_and_taken_in_several_commands() {
    let model = Model::new(ModelConfig { boot_pages: 1, init_pages: 5000, ..ModelConfig::default() });
    let device = open(&model, DeviceConfig::new(VF)).unwrap();
    assert_eq!(device.page_counters().given, 5001);
    assert_eq!(model.firmware_pages(), 5001);
    device.close().unwrap();
    let sizes: Vec<u32> = model.commands().iter().filter(|c| c.op_mod == 1 && c.slot == 31).map(|c| c.in_len).collect();
    let batch = 16 + 8 * 768;
    assert_eq!(sizes, [16 + 8, batch, batch, batch, batch, batch, batch, 16 + 8 * (5000 - 6 * 768)]);
    assert_clean(&model, "closed");
}

#[test]
fn a_firmware_that_wants_more_than_allowed_gets_nothing() {
    let model = Model::new(ModelConfig { init_pages: 5000, ..ModelConfig::default() });
    let mut config = DeviceConfig::new(VF);
    config.max_pages = 1000;
    let error = open(&model, config).unwrap_err();
    assert_eq!(error, Error::Invalid { what: "max_pages is less than the firmware asks for" });
    assert_clean(&model, "unwound");
}

#[test]
fn completion_entries_without_user_index_are_refused_by_name() {
    let caps = CapConfig { cqe_version: 0, ..CapConfig::default() };
    let model = Model::new(ModelConfig { caps, ..ModelConfig::default() });
    let error = open(&model, DeviceConfig::new(VF)).unwrap_err();
    assert!(matches!(error, Error::Unsupported { what } if what.contains("cqe_version")), "{error}");
    assert_eq!(error.errno(), 95);
    assert_clean(&model, "unwound");
}

/// Commands, asynchronous events and page requests have an event queue each; completions need one more.
#[test]
fn a_device_without_an_event_queue_for_completions_is_refused_by_name() {
    let with_queues = |log_max_eq| {
        let mut caps = CapConfig::default();
        caps.log_max[0] = log_max_eq;
        Model::new(ModelConfig { caps, ..ModelConfig::default() })
    };
    let few = with_queues(1);
    let error = open(&few, DeviceConfig::new(VF)).unwrap_err();
    assert!(matches!(error, Error::Unsupported { what } if what.contains("event queues")), "{error}");
    assert_clean(&few, "unwound");
    let enough = with_queues(2);
    open(&enough, DeviceConfig::new(VF)).unwrap().close().unwrap();
    assert_clean(&enough, "closed");
}

#[test]
fn more_completion_vectors_than_interrupts_share_them() {
    let model = model();
    let mut config = DeviceConfig::new(VF);
    config.completion_vectors = 8;
    config.interrupts = 4;
    open(&model, config).unwrap().close().unwrap();
    assert_clean(&model, "closed");
}

#[test]
fn dropping_a_device_gives_everything_back_too() {
    let model = model();
    drop(open(&model, DeviceConfig::new(VF)).unwrap());
    assert_clean(&model, "dropped");
}

#[test]
fn a_device_can_be_opened_again() {
    let model = model();
    for _ in 0..3 {
        open(&model, DeviceConfig::new(VF)).unwrap().close().unwrap();
    }
    assert_clean(&model, "closed");
}

#[test]
fn what_the_device_says_of_itself_is_read() {
    let config = ModelConfig { mac: [0x02, 0xab, 0xcd, 1, 2, 3], firmware: (22, 41, 1000), ..ModelConfig::default() };
    let model = Model::new(config);
    let device = open(&model, DeviceConfig::new(VF)).unwrap();
    let info = *device.info();
    assert_eq!((info.firmware, info.mac, info.issi), ((22, 41, 1000), [0x02, 0xab, 0xcd, 1, 2, 3], 1));
    assert_eq!(info.gid, Some([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0xab, 0xcd, 0xff, 0xfe, 1, 2, 3]));
    assert!(info.port_up);
    assert_eq!(device.caps().general.cqe_version(), 1);
    assert_eq!(device.caps().general.cmdif_checksum(), 0, "turned off");
    assert_eq!(device.caps().general.log_max_qp(), 17);
    assert!(device.caps().roce.is_some());
    device.close().unwrap();
}

#[test]
fn a_firmware_that_needs_its_time_is_waited_for() {
    let model = Model::new(ModelConfig { boot_ns: 90_000_000_000, command_ns: 300_000, ..ModelConfig::default() });
    open(&model, DeviceConfig::new(VF)).unwrap().close().unwrap();
    assert_clean(&model, "closed");
}

#[test]
fn a_firmware_that_never_starts_is_given_up_after_two_minutes() {
    use mlx5_hw::platform::Platform;
    let model = model();
    model.inject(Fault::NeverBoots);
    let started = model.now();
    let error = open(&model, DeviceConfig::new(VF)).unwrap_err();
    assert_eq!(error, Error::FirmwareNotReady);
    assert_eq!(error.errno(), 110);
    let waited = model.now() - started;
    assert!((120..121).contains(&(waited / 1_000_000_000)), "waited {waited} ns");
    assert_clean(&model, "given up");
}

#[test]
fn an_empty_slot_is_no_device() {
    let model = model();
    model.inject(Fault::Removed);
    let error = open(&model, DeviceConfig::new(VF)).unwrap_err();
    assert_eq!((error, error.errno()), (Error::Failed { why: Failure::Gone, command: None, sent: false }, 19));
}

#[test]
fn health_is_a_typed_state() {
    let model = model();
    let device = open(&model, DeviceConfig::new(VF)).unwrap();
    assert_eq!(device.health(), Health::Ok);
    model.inject(Fault::Health { syndrome: 0x7, severity: 4, request_reset: false });
    assert!(matches!(device.health(), Health::Syndrome { fatal: false, .. }));
    model.clear_faults();
    for _ in 0..10 {
        model.step(3_000_000_000);
        assert_eq!(device.health(), Health::Ok, "the counter moves");
    }
    model.inject(Fault::CounterStuck);
    model.step(3_000_000_000);
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(device.health());
        model.step(3_000_000_000);
    }
    assert_eq!(seen.last(), Some(&Health::CounterStopped), "{seen:?}");
    assert_eq!(seen[1], Health::Ok, "two polls say nothing yet");
    model.clear_faults();
    model.step(3_000_000_000);
    assert_eq!(device.health(), Health::Ok, "it came back");
    device.close().unwrap();
    assert_clean(&model, "closed");
}

#[test]
fn it_works_on_a_device_with_a_thread_of_its_own() {
    let model = model();
    let thread = model.spawn().unwrap();
    open(&model, DeviceConfig::new(VF)).unwrap().close().unwrap();
    drop(thread);
    assert_clean(&model, "closed");
}
