/** The replay of a plan: its progress, and the buttons that start, pause, resume, stop and abort it. */

import { useEffect, useState } from "react";
import { send } from "../actions/send";
import { ReplayDialog } from "../actions/replay_dialog";
import type { DryRun, PlanDetail, Replay } from "../api/replay_shapes";
import { useResource } from "../api/use_resource";
import { count, excerpt, printable } from "../model/format";
import { type Progress, progressOf, type ProgressSample, replayControls, replayMark, speedText, withProgress } from "../model/replays";
import { Command, Message, Notice, State, Time } from "../shell/parts";

const POLL_MS = 1_000;

export function ReplayPanel({ plan }: { plan: PlanDetail }) {
  const [asking, setAsking] = useState<"start" | "abort" | null>(null);
  const [sending, setSending] = useState<string | null>(null);
  const [refused, setRefused] = useState<string | null>(null);
  const found = useResource<Replay>(`replays/${encodeURIComponent(plan.plan)}`, POLL_MS);
  const replay = found.state === "ready" ? found.data : null;
  const isUnknown = found.state === "failed" || found.state === "forbidden";
  const state = replay?.state ?? plan.state;
  // A dry run alone is no replay: the plan can still be started.
  const works = replayControls(replay === null || replay.state === "PLANNED" ? null : replay);
  // The tables alone do not know of a replay that was started since.
  const mark = isUnknown && state === "PLANNED" ? { state: "unknown" as const, text: "not known" } : replayMark(state);

  async function act(action: "pause" | "resume" | "stop"): Promise<void> {
    setSending(action);
    setRefused(null);
    const answer = await send(`replays/${encodeURIComponent(plan.plan)}/${action}`, {});
    setSending(null);
    if (!answer.isDone) setRefused(answer.message);
  }

  return (
    <section className={`panel replay ${mark.state}`} aria-label="Replay">
      <header>
        <h2>Replay</h2>
        <State of={mark.state}>{mark.text}</State>
        {replay === null ? null : (
          <span className="muted">
            {replay.by === null ? "" : `by ${excerpt(replay.by)}, `}
            <Time at={replay.at} />
          </span>
        )}
        <span className="space" />
        {works.start && !isUnknown && found.state !== "loading" ? (
          <button type="button" className="button primary" aria-haspopup="dialog" onClick={() => setAsking("start")}>
            {replay === null || replay.state === "PLANNED" ? "Replay…" : "Go on…"}
          </button>
        ) : null}
        {works.pause ? <Act text="Pause" doing={sending === "pause"} onClick={() => void act("pause")} /> : null}
        {works.resume ? <Act text="Resume" doing={sending === "resume"} onClick={() => void act("resume")} /> : null}
        {works.stop ? <Act text="Stop" doing={sending === "stop"} onClick={() => void act("stop")} /> : null}
        {works.abort ? (
          <button type="button" aria-haspopup="dialog" onClick={() => setAsking("abort")}>
            Abort…
          </button>
        ) : null}
      </header>
      <div className="body">
        {isUnknown ? (
          <Notice state="unknown" title="It is not known whether it was replayed">
            <p>
              <Message of={found.problem.message} />
            </p>
            <Command text="headgate doctor --config FILE" />
          </Notice>
        ) : null}
        {refused === null ? null : (
          <Notice state="stopped" title="That could not be done">
            <p>
              <Message of={refused} />
            </p>
          </Notice>
        )}
        {replay !== null ? <Running replay={replay} /> : found.state === "absent" ? <p className="muted">This plan has not been replayed.</p> : null}
        {replay?.dry_run == null ? null : <DryRunResult of={replay.dry_run} />}
        {state === "DONE" ? (
          <>
            <p className="muted">What was written where, record by record:</p>
            <Command text={`headgate dlq audit --plan ${plan.plan} --config FILE`} />
          </>
        ) : null}
      </div>
      {asking === null ? null : <ReplayDialog action={asking} plan={plan} onClose={() => setAsking(null)} />}
    </section>
  );
}

function Act({ text, doing, onClick }: { text: string; doing: boolean; onClick: () => void }) {
  return (
    <button type="button" disabled={doing} onClick={onClick}>
      {text}
    </button>
  );
}

function Running({ replay }: { replay: Replay }) {
  const [samples, setSamples] = useState<ProgressSample[]>([]);
  const progress = progressOf(replay);
  const isMoving = replay.state === "RUNNING" || replay.state === "STARTING";
  useEffect(() => {
    setSamples((before) => withProgress(before, { at: Date.now(), finished: progress.finished }));
  }, [progress.finished, replay]);
  const left = replay.records === null ? null : replay.records - progress.finished;
  const speed = isMoving ? speedText(samples, left) : null;
  return (
    <>
      {replay.state === "PLANNED" ? null : <Bar progress={progress} state={replay.state} />}
      {isMoving ? (
        <p className="muted">
          {speed ?? "No record was written in the last seconds."}
          {replay.rate === null ? "" : ` At most ${count(replay.rate)} a second.`}
          {replay.timestamp === "now" ? " With the time of writing." : replay.timestamp === "original" ? " With the original times." : ""}
          {replay.here ? "" : " It is run by a command, not by this server."}
        </p>
      ) : null}
      {replay.stopped_by === null ? null : <p>Stopped: {printable(replay.stopped_by)}</p>}
      {replay.error === null ? null : (
        <Notice state="stopped" title="The replay failed">
          <pre className="told">{printableLines(replay.error)}</pre>
        </Notice>
      )}
      <Skipped reasons={replay.reasons} />
      {replay.notes.map((note) => (
        <p key={note}>
          <State of="attention">{printable(note)}</State>
        </p>
      ))}
      {replay.go_on === null || replay.state === "DONE" || replay.state === "ABORTED" ? null : (
        <p className="muted">
          <Message of={replay.go_on} />
        </p>
      )}
    </>
  );
}

function printableLines(text: string): string {
  return text.split("\n").map(printable).join("\n");
}

function Bar({ progress, state }: { progress: Progress; state: string }) {
  const percent = progress.share === null ? null : Math.floor(progress.share * 100);
  return (
    <div className="progress">
      <div
        role="progressbar"
        aria-label="Progress of the replay"
        aria-valuemin={0}
        aria-valuemax={100}
        {...(percent === null ? {} : { "aria-valuenow": percent })}
        aria-valuetext={progress.text}
        className={replayMark(state).state}
      >
        <i style={{ width: `${(progress.share ?? 0) * 100}%` }} />
      </div>
      <p>
        {progress.text}
        {percent === null ? "" : ` (${percent} %)`}
      </p>
    </div>
  );
}

function Skipped({ reasons }: { reasons: Record<string, number> }) {
  const rows = Object.entries(reasons).sort(([, a], [, b]) => b - a);
  if (rows.length === 0) return null;
  return <p className="muted">Skipped: {rows.map(([reason, number]) => `${count(number)} ${printable(reason.replaceAll("_", " "))}`).join(", ")}.</p>;
}

function DryRunResult({ of }: { of: DryRun }) {
  const isRunning = of.state === "RUNNING" || of.state === "STARTING";
  const state = of.error !== null || of.state === "FAILED" ? "stopped" : isRunning ? "unknown" : of.skipped > 0 ? "attention" : "good";
  const title = isRunning ? "The dry run is under way" : state === "stopped" ? "The dry run failed" : "The dry run is done";
  return (
    <Notice state={state} title={title}>
      <p>
        {count(of.written)} {of.written === 1 ? "record" : "records"} would be written, {count(of.parked)} parked, {count(of.skipped)} skipped. Nothing was written.
      </p>
      <Skipped reasons={of.reasons} />
      {of.stopped_by === null ? null : <p>Stopped: {printable(of.stopped_by)}</p>}
      {of.error === null ? null : <pre className="told">{printableLines(of.error)}</pre>}
    </Notice>
  );
}
