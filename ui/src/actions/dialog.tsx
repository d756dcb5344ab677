/** A modal dialog with a form: the browser keeps the focus inside, and gives it back at the end. */

import { type FormEvent, type ReactNode, useEffect, useId, useRef } from "react";

export function ActionDialog({
  title,
  isWide = false,
  onClose,
  onSubmit,
  children,
}: {
  title: ReactNode;
  isWide?: boolean;
  onClose: () => void;
  onSubmit: (event: FormEvent) => Promise<void>;
  children: (close: () => void) => ReactNode;
}) {
  const box = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    box.current?.showModal();
  }, []);
  return (
    <dialog ref={box} className={isWide ? "action wide-dialog" : "action"} aria-labelledby={id} onClose={onClose}>
      <form onSubmit={(event) => void onSubmit(event)}>
        <h2 id={id}>{title}</h2>
        {children(() => box.current?.close())}
      </form>
    </dialog>
  );
}
