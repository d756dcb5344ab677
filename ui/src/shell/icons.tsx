/** Icons of kinds and views: 16 units, drawn with the colour of the text. */

const PATHS: Readonly<Record<string, string>> = {
  now: "M8 2v6l4 2M8 14.5A6.5 6.5 0 1 1 8 1.5a6.5 6.5 0 0 1 0 13Z",
  map: "M2 8h3m6-4H9L7 8l2 4h2M5 6h2v4H5zM11 2.5h3v3h-3zM11 10.5h3v3h-3z",
  apps: "M2.5 2.5h4.5v4.5H2.5zM9 2.5h4.5v4.5H9zM2.5 9h4.5v4.5H2.5zM9 9h4.5v4.5H9z",
  topics: "M2 4h12M2 8h12M2 12h8",
  groups: "M5.5 7a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM11 8a1.7 1.7 0 1 0 0-3.4A1.7 1.7 0 0 0 11 8ZM1.8 13c.3-2.5 1.7-4 3.7-4s3.4 1.5 3.7 4M10 10c2.2-.6 3.9.6 4.2 3",
  letters: "M2 3.5h12v9H2zM2 4l6 5 6-5",
  connect: "M6 2v4M10 2v4M4 6h8v3a4 4 0 0 1-8 0zM8 13v2",
  health: "M1.5 8.5h3l1.5-4 3 7.5 2-5 .8 1.5h2.7",
  topic: "M2 4h12M2 8h12M2 12h8",
  streams: "M2 5c2-2 4 2 6 0s4 2 6 0M2 11c2-2 4 2 6 0s4 2 6 0",
  spark: "M8 1.5 9.7 6.3 14.5 8 9.7 9.7 8 14.5 6.3 9.7 1.5 8 6.3 6.3Z",
  connector: "M6 2v4M10 2v4M4 6h8v3a4 4 0 0 1-8 0zM8 13v2",
  share_group: "M4 8 12 3.5M4 8l8 4.5M4.5 8a1.5 1.5 0 1 1-3 0 1.5 1.5 0 0 1 3 0ZM14.5 3.5a1.5 1.5 0 1 1-3 0 1.5 1.5 0 0 1 3 0ZM14.5 12.5a1.5 1.5 0 1 1-3 0 1.5 1.5 0 0 1 3 0Z",
  consumer_group: "M5.5 7a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM1.8 13c.3-2.5 1.7-4 3.7-4s3.4 1.5 3.7 4M10.5 5h4M10.5 8h4",
  client: "M2.5 3h11v7.5h-11zM6 13.5h4M8 10.5v3",
  unattributed: "M6 6a2 2 0 1 1 2.7 1.9c-.5.2-.7.6-.7 1.1v.5M8 12v.6M8 14.5A6.5 6.5 0 1 1 8 1.5a6.5 6.5 0 0 1 0 13Z",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10ZM11 11l3.5 3.5",
};

export function Icon({ of }: { of: string }) {
  return (
    <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" fill="none" stroke="currentColor" strokeWidth="1.3" strokeLinejoin="round" strokeLinecap="round">
      <path d={PATHS[of] ?? PATHS["unattributed"]} />
    </svg>
  );
}
