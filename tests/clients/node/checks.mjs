// Checks of one client library: each runs, and all results go to stdout as one JSON object.
export const { API, KEY } = process.env;
export const FOUND = { Oslo: "rain", Rome: "sun" };
export const BOTH = "Oslo: rain; Rome: sun";
export const PARIS = { city: "Paris", country: "France" };

export const reversedQuestion = (text) => [...text].reverse().join("");

export async function run(checks) {
  const results = {};
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
      results[name] = "ok";
    } catch (error) {
      results[name] = String(error?.stack ?? error);
    }
  }
  console.log(JSON.stringify(results));
}
