// Markdown as elements. Text stays text: nothing here turns a string into markup, and nothing is loaded.
import type { ComponentChildren, JSX } from "preact";
import { useMemo } from "preact/hooks";
import { lexer, type Token, type Tokens } from "marked";

/** Deeper nesting is shown as text. */
const DEEPEST = 24;
/** Longer texts are not parsed. */
const LONGEST = 200_000;

const SCHEMES = new Set(["http:", "https:", "mailto:"]);

/** The address of a link, if it leads to a web page or a mailbox. */
export function safeHref(href: string): string | null {
  try {
    const url = new URL(href);
    return SCHEMES.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

const NAMED: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", "#39": "'" };
/** Some tokens have a few characters escaped for HTML. */
const plain = (text: string) => text.replace(/&(amp|lt|gt|quot|apos|nbsp|#39);/g, (_, name: string) => NAMED[name] ?? "");

function children(tokens: Token[] | undefined, depth: number): ComponentChildren {
  return (tokens ?? []).map((token) => one(token, depth + 1));
}

function one(token: Token, depth: number): ComponentChildren {
  if (depth > DEEPEST) return token.raw;
  const inner = () => children((token as Tokens.Generic)["tokens"] as Token[] | undefined, depth);
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading": {
      const level = Math.min(6, (token as Tokens.Heading).depth);
      return (
        <div class={`h h${level}`} role="heading" aria-level={Math.min(6, level + 3)}>
          {inner()}
        </div>
      );
    }
    case "paragraph":
      return <p>{inner()}</p>;
    case "blockquote":
      return <blockquote>{inner()}</blockquote>;
    case "hr":
      return <hr />;
    case "br":
      return <br />;
    case "code":
      return (
        <pre tabIndex={0}>
          <code>{(token as Tokens.Code).text}</code>
        </pre>
      );
    case "codespan":
      return <code>{(token as Tokens.Codespan).text}</code>;
    case "strong":
      return <strong>{inner()}</strong>;
    case "em":
      return <em>{inner()}</em>;
    case "del":
      return <del>{inner()}</del>;
    case "list": {
      const list = token as Tokens.List;
      const items = list.items.map((item) => (
        <li class={item.task ? "check" : undefined}>
          {item.task ? (item.checked ? "☑ " : "☐ ") : null}
          {children(
            item.tokens.filter((token) => token.type !== "checkbox"),
            depth,
          )}
        </li>
      ));
      return list.ordered ? <ol start={Number(list.start) || 1}>{items}</ol> : <ul>{items}</ul>;
    }
    case "table": {
      const table = token as Tokens.Table;
      return (
        <div class="scroll-x" tabIndex={0} role="group" aria-label="Table">
          <table>
            <thead>
              <tr>
                {table.header.map((cell) => (
                  <th scope="col">{children(cell.tokens, depth)}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {table.rows.map((row) => (
                <tr>
                  {row.map((cell) => (
                    <td>{children(cell.tokens, depth)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      );
    }
    case "link": {
      const link = token as Tokens.Link;
      const href = safeHref(link.href);
      if (href === null) return <span title={link.href}>{inner()}</span>;
      return (
        <a href={href} title={href} target="_blank" rel="noopener noreferrer nofollow">
          {inner()}
        </a>
      );
    }
    case "image": {
      // An image would tell its server that somebody reads this, and whatever is in its address.
      const image = token as Tokens.Image;
      const href = safeHref(image.href);
      const text = `[image: ${plain(image.text) || image.href}]`;
      if (href === null) return text;
      return (
        <a href={href} title={href} target="_blank" rel="noopener noreferrer nofollow">
          {text}
        </a>
      );
    }
    case "text":
      return (token as Tokens.Text).tokens
        ? inner()
        : (token as Tokens.Text).escaped
          ? plain((token as Tokens.Text).text)
          : (token as Tokens.Text).text;
    case "escape":
      return plain((token as Tokens.Escape).text);
    default:
      // HTML above all: it is shown as it was written.
      return token.raw;
  }
}

export function Markdown({ text, live }: { text: string; live?: boolean | undefined }): JSX.Element {
  const made = useMemo(() => {
    if (text.length > LONGEST) return <p class="pre">{text}</p>;
    try {
      return children(lexer(text, { gfm: true, breaks: false }), 0);
    } catch {
      return <p class="pre">{text}</p>;
    }
  }, [text]);
  return <div class={live ? "md live" : "md"}>{made}</div>;
}
