//! A campaign as SARIF 2.1.0: a rule and a result for each finding, with its backtrace if known.

use pmi_fuzzer::campaign::{CampaignOptions, CampaignSummary};
use pmi_fuzzer::triage::store::SCENARIO;
use pmi_judge::backtrace::StackFrame;
use serde_json::json;

fn frame_of(frame: &StackFrame) -> serde_json::Value {
    json!({
        "module": frame.module.as_deref().unwrap_or_default(),
        "location": {
            "logicalLocations": [{"fullyQualifiedName": frame.name(), "kind": "function"}],
            "physicalLocation": {"address": {"relativeAddress": frame.offset, "kind": "instruction"}},
            "message": {"text": frame.to_string()},
        },
    })
}

pub(super) fn write(options: &CampaignOptions, campaign: &CampaignSummary) -> String {
    let rules: Vec<_> = campaign
        .found
        .iter()
        .map(|f| json!({"id": f.bucket, "shortDescription": {"text": f.description}}))
        .collect();
    let results: Vec<_> = campaign
        .found
        .iter()
        .map(|f| {
            let uri = options.out.join(&f.bucket).join(SCENARIO);
            let mut result = json!({
                "ruleId": f.bucket,
                "level": "error",
                "message": {"text": format!("{} ({})", f.description, f.label())},
                "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri.to_string_lossy()}}}],
                "partialFingerprints": {"bucket/v1": f.bucket, "root/v1": f.root().to_string()},
                "properties": {"valid": f.valid, "minimized": f.minimized, "kind": f.kind},
            });
            if let Some(trace) = &f.backtrace {
                let frames: Vec<_> = trace.frames.iter().map(frame_of).collect();
                result["stacks"] = json!([{"message": {"text": format!("{} got signal {}", trace.name, trace.signal)}, "frames": frames}]);
            }
            result
        })
        .collect();
    let report = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "pmi-conform fuzz", "version": env!("CARGO_PKG_VERSION"), "rules": rules}},
            "results": results,
        }],
    });
    format!("{report:#}\n")
}
