// A component that is drawn again only if its properties have changed.
import { Component, h, type ComponentChildren, type FunctionComponent } from "preact";

export function memo<P extends object>(Inner: FunctionComponent<P>, same: (a: P, b: P) => boolean): FunctionComponent<P> {
  class Memo extends Component<P> {
    override shouldComponentUpdate(next: Readonly<P>): boolean {
      return !same(this.props as P, next as P);
    }
    override render(): ComponentChildren {
      return h(Inner as FunctionComponent, this.props as object);
    }
  }
  return Memo as unknown as FunctionComponent<P>;
}
