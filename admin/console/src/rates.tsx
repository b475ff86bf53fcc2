import { useRef } from "preact/hooks";
import type { EntityRates, Sample } from "./api";
import { Chart } from "./ui";

/** Hour draws the last hour of an entity or of the namespace: messages per second, and messages stored. */
export function Hour({ rates, everySeconds, at }: { rates?: EntityRates; everySeconds: number; at: number }) {
  const samples = rates?.samples ?? [];
  const times = useRef({ at: 0, of: [] as number[] });
  if (times.current.at !== at) {
    times.current = { at, of: samples.map((_, i) => Math.round(at / 1000) - (samples.length - 1 - i) * everySeconds) };
  }
  if (!samples.length) {
    return <p class="quiet">No messages in the last hour.</p>;
  }
  const perSecond = (of: (s: Sample) => number) => samples.map((s) => of(s) / everySeconds);
  return (
    <div class="charts">
      <Chart
        title="Messages per second, last hour"
        times={times.current.of}
        series={[
          { label: "Incoming", values: perSecond((s) => s.incoming) },
          { label: "Dead-lettered", values: perSecond((s) => s.deadLettered) },
          { label: "Delivered", values: perSecond((s) => s.outgoing) },
        ]}
      />
      <Chart
        title="Messages stored, last hour"
        times={times.current.of}
        series={[
          { label: "Active", values: samples.map((s) => s.active) },
          { label: "Dead letters", values: samples.map((s) => s.deadLetter) },
        ]}
      />
    </div>
  );
}
